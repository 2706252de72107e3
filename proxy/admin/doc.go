// Package admin serves the admin port: health, readiness, metrics, the status page, flags and profiles. The port asks for no
// credentials, so it refuses requests that another web site causes in somebody's browser.
//
//   - port.go: the paths; guard.go: the checks that come first
//   - source.go: the state of listproxy, which the files below show
//   - ready.go: the checks of /readyz
//   - status.go: the content of the status page; statuscounts.go: its counts, read from metrics; page.go: the page
//   - metrics.go: metrics of state, which are read at each scrape
package admin
