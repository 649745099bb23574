{{/* Rights. Each process gets what its code calls, no more; a test runs them with exactly these. */}}

{{/* dict "root" $ "process" "watcher" "rules" "...": a ClusterRole with its binding, or one Role each per namespace. */}}
{{- define "osb.grant" -}}
{{- $root := .root -}}{{- $rules := .rules -}}{{- $process := .process -}}
{{- $name := printf "%s-%s" (include "osb.clusterName" $root) $process -}}
{{- $subject := printf "- {kind: ServiceAccount, name: %s, namespace: %s}" (include "osb.account" (dict "root" $root "process" $process)) (include "osb.namespace" $root) -}}
{{- $namespaces := list "" -}}
{{- if eq $root.Values.rbac.scope "namespace" }}{{ $namespaces = splitList "," (include "osb.roleNamespaces" $root) }}{{ end -}}
{{- range $namespaces }}
{{- $kind := ternary "Role" "ClusterRole" (ne . "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with . }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "osb.labels" $root | nindent 4 }}
rules:
  {{- $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with . }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "osb.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  {{ $subject }}
{{- end }}
{{- end }}

{{/* dict "root" $ "name" "lease" "rules" "..." "processes" (list ...): a Role in our own namespace with its binding. */}}
{{- define "osb.grantHome" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "osb.prefix" $root) .name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ include "osb.namespace" $root }}
  labels:
    {{- include "osb.labels" $root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ include "osb.namespace" $root }}
  labels:
    {{- include "osb.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  {{- range .processes }}
  - {kind: ServiceAccount, name: {{ include "osb.account" (dict "root" $root "process" .) }}, namespace: {{ include "osb.namespace" $root }}}
  {{- end }}
{{- end }}
