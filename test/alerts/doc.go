// Package alerts tests what the chart gives to Prometheus and Grafana: its rules and its dashboard.
//
// The real promtool checks all rules, runs the unit tests in testdata against some of them, and reads
// the queries of the dashboard. What promtool cannot know is checked here: that every metric, label and word
// in a query is one that listproxy has, and that docs/observability.md says what to do about each alert.
package alerts
