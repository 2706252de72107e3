// Package chart tests the chart in charts/listproxy with the real Helm, its alert rules and its
// dashboard with the real promtool, and the Dockerfile.
//
// Without a cluster: what Helm makes of the values in testdata is compared with golden files (-update
// writes them), and for all of them there are rules: the chart gives exactly the rights that the policy
// needs, as package policy reads it. Wrong values are refused, and values.yaml explains every value.
//
// With a real kube-apiserver: the chart is installed, upgraded and removed, and its policy changes pods. Nobody runs
// them: package test/cluster has a kubelet.
//
// promtool checks all rules, runs the unit tests in testdata/rules against some of them, and reads
// the queries of the dashboard. What promtool cannot know is checked here: every metric, label and
// word in a query is one that listproxy has, and docs/observability.md says what to do about each
// alert.
package chart
