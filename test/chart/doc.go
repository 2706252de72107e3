// Package chart tests the chart in charts/listproxy with the real Helm, its alert rules and its
// dashboard with the real promtool, and the Dockerfile.
//
// Without a cluster: manifests rendered from the values in testdata are compared with golden files (-update
// writes them), and must keep invariants, such as that the chart grants exactly the rights that the policy
// needs. Wrong values are refused.
//
// With a real kube-apiserver: the chart is installed, upgraded and removed, and its admission policy changes pods. Nobody
// runs these pods: package test/cluster has a kubelet.
//
// promtool checks all alert rules, runs the unit tests in testdata/rules, and reads
// the queries of the dashboard. These tests check what promtool cannot know: listproxy has every metric, label and
// value in a query, and docs/observability.md says what to do about each alert.
package chart
