// Package status is listproxy status: it shows the status page of a running listproxy in a
// terminal.
package status
