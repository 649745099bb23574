{{/* Settings become environment: OSB_ and the flag in capitals (docs/settings.md). */}}

{{- define "osb.redisEnv" -}}
- name: OSB_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "osb.redisSecret" . }}
      key: {{ if .Values.redis.existingSecret }}{{ .Values.redis.existingSecretKey }}{{ else }}url{{ end }}
{{- if .Values.redis.caSecret }}
- name: SSL_CERT_FILE
  value: /etc/osb/redis-ca/ca.crt
{{- end }}
{{- end }}

{{/* dict "root" $ "own" (dict of the process's own variables): the whole env list. extraArgs win over values. */}}
{{- define "osb.env" -}}
{{- $v := .root.Values -}}
{{- $env := dict
  "OSB_INSTALLATION" (printf "%s/%s" (include "osb.namespace" .root) .root.Release.Name)
  "OSB_ZAP_LOG_LEVEL" ($v.controller.logLevel | toString)
  "OSB_KUBE_CLIENT_QPS" ($v.controller.kubeClient.qps | toString)
  "OSB_KUBE_CLIENT_BURST" ($v.controller.kubeClient.burst | toString)
  "OSB_IMAGE_COMMITTER_IMAGE" $v.controller.snapshot.imageCommitterImage
  "OSB_COMMIT_JOB_TIMEOUT" $v.controller.snapshot.commitJobTimeout
  "OSB_CONTAINERD_SOCKET_PATH" $v.controller.snapshot.containerdSocketPath
  "OSB_SNAPSHOT_REGISTRY" $v.controller.snapshot.registry
  "OSB_SNAPSHOT_REGISTRY_INSECURE" ($v.controller.snapshot.registryInsecure | toString)
  "OSB_SNAPSHOT_PUSH_SECRET" $v.controller.snapshot.snapshotPushSecret
  "OSB_RESUME_PULL_SECRET" $v.controller.snapshot.resumePullSecret
  "OSB_NO_LEASE" (not $v.controller.leaderElection.enabled | toString)
  "OSB_NAMESPACES" (include "osb.roleNamespaces" .root)
  "OSB_TASK_EVENTS" ($v.flower.enabled | toString)
  "OSB_METRICS_BIND_ADDRESS" (ternary (printf ":%v" $v.metrics.port) "0" $v.metrics.enabled)
-}}
{{- $env = mergeOverwrite $env (.own | default dict) -}}
{{- range $v.extraArgs -}}
{{- $arg := trimPrefix "--" . -}}
{{- $name := first (splitList "=" $arg) -}}
{{- $value := ternary (trimPrefix (printf "%s=" $name) $arg) "true" (contains "=" $arg) -}}
{{- $_ := set $env (printf "OSB_%s" ($name | upper | replace "-" "_")) $value -}}
{{- end -}}
{{- include "osb.redisEnv" .root }}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if $v.tasks.executorTokenSecret }}
- name: OSB_EXECUTOR_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $v.tasks.executorTokenSecret }}, key: token}}
{{- end }}
{{- range $name := keys $env | sortAlpha }}
{{- with get $env $name }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
