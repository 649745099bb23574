{{/* Names, labels, versions: what every template starts from. */}}

{{- define "osb.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "osb.prefix" -}}
{{- .Values.fullnameOverride | default "opensandbox" | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Cluster-wide names carry namespace and release, so that two installations do not collide. */}}
{{- define "osb.clusterName" -}}
{{- printf "%s-%s-%s" (include "osb.prefix" .) (include "osb.namespace" .) .Release.Name | trunc 200 -}}
{{- end }}

{{- define "osb.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "opensandbox" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "osb.labels" -}}
{{ include "osb.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Marks watcher, workers and beat, for Services and policies that mean all three. */}}
{{- define "osb.processLabel" -}}
app.kubernetes.io/part-of: opensandbox-controller
{{- end }}

{{- define "osb.image" -}}
{{- $tag := .Values.controller.image.tag | default (printf "v%s" .Chart.AppVersion) -}}
{{- printf "%s:%s" .Values.controller.image.repository $tag -}}
{{- end }}

{{/* dict "root" $ "process" "worker": its ServiceAccount. */}}
{{- define "osb.account" -}}
{{- $name := .root.Values.serviceAccount.name | default (printf "%s-controller-manager" (include "osb.prefix" .root)) -}}
{{- if eq .process "watcher" }}{{ $name }}{{ else }}{{ printf "%s-%s" $name .process }}{{ end -}}
{{- end }}

{{- define "osb.kubeVersion" -}}
{{- .Values.capabilities.kubeVersion | default .Capabilities.KubeVersion.Version -}}
{{- end }}

{{/* dict "root" $ "api" "policy/v1": "true" when the cluster serves it. */}}
{{- define "osb.serves" -}}
{{- $named := .root.Values.capabilities.apiVersions -}}
{{- if $named }}{{ if has .api $named }}true{{ end }}
{{- else if .root.Capabilities.APIVersions.Has .api }}true{{ end -}}
{{- end }}

{{- define "osb.redisBundled" -}}
{{- if and .Values.redis.url .Values.redis.existingSecret }}{{ fail "redis.url and redis.existingSecret exclude each other" }}{{ end -}}
{{- if not (or .Values.redis.url .Values.redis.existingSecret) }}true{{ end -}}
{{- end }}

{{- define "osb.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" (include "osb.prefix" .)) -}}
{{- end }}

{{- define "osb.flowerSecret" -}}
{{- .Values.flower.existingSecret | default (printf "%s-flower" (include "osb.prefix" .)) -}}
{{- end }}

{{/* Namespaces of Roles, as a comma-separated list; fails when the scope asks for some and none is named. */}}
{{- define "osb.roleNamespaces" -}}
{{- if and (eq .Values.rbac.scope "namespace") (not .Values.rbac.namespaces) -}}
{{- fail "rbac.scope namespace needs rbac.namespaces" -}}
{{- end -}}
{{- join "," .Values.rbac.namespaces -}}
{{- end }}
