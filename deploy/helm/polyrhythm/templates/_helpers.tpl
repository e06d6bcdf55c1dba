{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "polyrhythm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "polyrhythm.labels" -}}
app.kubernetes.io/name: polyrhythm
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "polyrhythm.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
