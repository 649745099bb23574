{{/* Pod templates: what all pods share, then what watcher, workers and beat share. */}}

{{/* dict "root" $ "component" "beat": labels and annotations of a pod. */}}
{{- define "osb.podMetadata" -}}
labels:
  {{- include "osb.labels" .root | nindent 2 }}
  control-plane: {{ .component }}
  {{- if .process }}
  {{- include "osb.processLabel" .root | nindent 2 }}
  {{- end }}
  {{- with .root.Values.controller.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/redis: {{ printf "%s %s" .root.Values.redis.url .root.Values.redis.existingSecret | sha256sum | trunc 16 | quote }}
  {{- with .root.Values.controller.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Scheduling, the same for every pod. */}}
{{- define "osb.podPlace" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- end }}

{{- define "osb.volumes" -}}
- name: run
  emptyDir: {}
{{- if .Values.redis.caSecret }}
- name: redis-ca
  secret:
    secretName: {{ .Values.redis.caSecret }}
{{- end }}
{{- end }}

{{- define "osb.mounts" -}}
- name: run
  mountPath: /tmp
{{- if .Values.redis.caSecret }}
- name: redis-ca
  mountPath: /etc/osb/redis-ca
  readOnly: true
{{- end }}
{{- end }}

{{/* Image, security and folders of a container of ours. */}}
{{- define "osb.container" -}}
image: {{ include "osb.image" . }}
imagePullPolicy: {{ .Values.controller.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.controller.containerSecurityContext | nindent 2 }}
{{- end }}

{{/* Liveness and readiness of workers and beat: a file their own loop touches, no broker, no imports of ours. */}}
{{- define "osb.heartbeatProbes" -}}
{{- $h := .Values.heartbeat -}}
startupProbe:
  exec: {command: [osb-probe, alive]}
  periodSeconds: 5
  timeoutSeconds: {{ $h.timeoutSeconds }}
  failureThreshold: 120
livenessProbe:
  exec: {command: [osb-probe, alive]}
  periodSeconds: {{ $h.periodSeconds }}
  timeoutSeconds: {{ $h.timeoutSeconds }}
  failureThreshold: {{ $h.failureThreshold }}
readinessProbe:
  exec: {command: [osb-probe, ready]}
  periodSeconds: {{ $h.periodSeconds }}
  timeoutSeconds: {{ $h.timeoutSeconds }}
{{- end }}

{{/* The pod of a process that holds no port but metrics: dict root, component, account, command, own, resources. */}}
{{- define "osb.processPod" -}}
metadata:
  {{- include "osb.podMetadata" (dict "root" .root "component" .component "process" true) | nindent 2 }}
spec:
  serviceAccountName: {{ include "osb.account" (dict "root" .root "process" .account) }}
  securityContext:
    {{- toYaml .root.Values.controller.podSecurityContext | nindent 4 }}
  {{- include "osb.podPlace" .root | nindent 2 }}
  {{- with .root.Values.extraInitContainers }}
  {{- if $.first }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  containers:
    - name: {{ .container }}
      {{- include "osb.container" .root | nindent 6 }}
      command: {{ toJson .command }}
      env:
        {{- include "osb.env" (dict "root" .root "own" (merge .own (dict "OSB_HEARTBEAT_FILE" "/tmp/alive"))) | nindent 8 }}
      {{- with .ports }}
      ports:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- .probes | nindent 6 }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        {{- include "osb.mounts" .root | nindent 8 }}
        {{- with .root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if .first }}
    {{- with .root.Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
  volumes:
    {{- include "osb.volumes" .root | nindent 4 }}
    {{- with .root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "osb.metricsPorts" -}}
{{- if .Values.metrics.enabled }}
- name: metrics
  containerPort: {{ .Values.metrics.port }}
{{- end }}
{{- end }}
