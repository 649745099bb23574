{{/* dict "root" $ "plural" "pools": the generated definition as it is, with our annotations put in. */}}
{{- define "osb.crd" -}}
{{- $v := .root.Values -}}
{{- if $v.crds.install -}}
{{- $folder := "crds" -}}
{{- /* Older servers drop validation rules, and older kubectl refuses them; from 1.30 on stored objects are forgiven. */ -}}
{{- if semverCompare ">=1.30.0-0" (include "osb.kubeVersion" .root) }}{{ $folder = "crds-cel" }}{{ end -}}
{{- $notes := dict -}}
{{- if $v.crds.keep }}{{ $_ := set $notes "helm.sh/resource-policy" "keep" }}{{ end -}}
{{- $notes = merge $notes $v.crds.annotations -}}
{{- $text := .root.Files.Get (printf "files/%s/%s.yaml" $folder .plural) -}}
{{- if $notes }}
{{- $text = $text | replace "\nmetadata:\n" (printf "\nmetadata:\n  annotations:\n%s\n" (toYaml $notes | indent 4)) -}}
{{- end -}}
{{- $text -}}
{{- end -}}
{{- end }}
