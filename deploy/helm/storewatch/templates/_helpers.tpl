{{- define "storewatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "storewatch.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "storewatch.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "storewatch.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "storewatch.selector" -}}
app.kubernetes.io/name: {{ include "storewatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "storewatch.labels" -}}
{{ include "storewatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "storewatch.serviceAccount" -}}
{{- default (include "storewatch.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "storewatch.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The port at the end of host:port. */}}
{{- define "storewatch.port" -}}
{{- regexFind "[0-9]+$" . }}
{{- end }}

{{- define "storewatch.probePort" -}}
{{- $listen := .Values.config.listen | default dict }}
{{- include "storewatch.port" ($listen.probe | default "[::]:9465") }}
{{- end }}

{{/* Empty when metrics are off. */}}
{{- define "storewatch.metricsPort" -}}
{{- $listen := .Values.config.listen | default dict }}
{{- include "storewatch.port" ($listen.metrics | default "[::]:9466") }}
{{- end }}

{{/* Features of the agent that need rights: the text is empty when they are off. */}}
{{- define "storewatch.source" -}}
{{- (.Values.config.pods | default dict).source | default "kubernetes" }}
{{- end }}
{{- define "storewatch.gate" -}}
{{- if eq ((.Values.config.kubernetes | default dict).readiness_gate | default "off") "on" }}on{{ end }}
{{- end }}
{{- define "storewatch.heals" -}}
{{- if ne ((.Values.config.healing | default dict).mode | default "off") "off" }}on{{ end }}
{{- end }}
{{- define "storewatch.events" -}}
{{- if or (eq ((.Values.config.kubernetes | default dict).events | default "on") "on") (include "storewatch.heals" .) }}on{{ end }}
{{- end }}
{{/* The API server is asked at all. */}}
{{- define "storewatch.api" -}}
{{- if or (eq (include "storewatch.source" .) "kubernetes") (include "storewatch.gate" .) (include "storewatch.heals" .) }}on{{ end }}
{{- end }}

{{/* Namespaces of Servers, Stores and PD, as the agent derives them; empty: all. */}}
{{- define "storewatch.namespaces" -}}
{{- $config := .Values.config }}
{{- $clusters := $config.clusters }}
{{- if not $clusters }}
{{- $clusters = list (merge (dict "namespaces" (($config.kubernetes | default dict).namespaces | default list)) ($config.hugegraph | default dict)) }}
{{- end }}
{{- $found := list }}
{{- $all := false }}
{{- range $cluster := $clusters }}
{{- $own := $cluster.namespaces | default list }}
{{- if not $own }}
{{- range $cluster.pd_peers | default list }}
{{- $host := regexReplaceAll ":[0-9]+$" . "" }}
{{- $before := regexFind "^[^.]+\\.([^.]+\\.)+(svc|SVC)(\\.|$)" $host | trimSuffix "." }}
{{- if $before }}
{{- $own = append $own (index (splitList "." $before | reverse) 1 | lower) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $own }}{{ $all = true }}{{ end }}
{{- $found = concat $found $own }}
{{- end }}
{{- if not $all }}{{ $found | uniq | sortAlpha | join " " }}{{ end }}
{{- end }}

{{/*
What one service account may do about the judged pods, as one Role and binding for each namespace, or as a ClusterRole.
Takes a list: the context, the suffix of the names, the service account, the rules, annotations.
*/}}
{{- define "storewatch.grant" -}}
{{- $top := index . 0 }}
{{- $name := printf "%s%s" (include "storewatch.fullname" $top) (index . 1) }}
{{- $account := index . 2 }}
{{- $rules := index . 3 }}
{{- $annotations := index . 4 }}
{{- $bound := index . 5 }}
{{- $namespaces := include "storewatch.namespaces" $top }}
{{- $kinds := "" }}
{{- if not $namespaces }}{{ $kinds = "Cluster" }}{{ end }}
{{- range $namespace := splitList " " $namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kinds }}Role
metadata:
  {{- if not $kinds }}
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- else }}
  name: {{ printf "%s:%s" $top.Release.Namespace $name }}
  {{- end }}
  labels:
    {{- include "storewatch.labels" $top | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  {{- toYaml $rules | nindent 2 }}
{{- if $bound }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kinds }}RoleBinding
metadata:
  {{- if not $kinds }}
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- else }}
  name: {{ printf "%s:%s" $top.Release.Namespace $name }}
  {{- end }}
  labels:
    {{- include "storewatch.labels" $top | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kinds }}Role
  {{- if not $kinds }}
  name: {{ $name }}
  {{- else }}
  name: {{ printf "%s:%s" $top.Release.Namespace $name }}
  {{- end }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $top.Release.Namespace }}
{{- end }}
{{ end }}
{{- end }}
