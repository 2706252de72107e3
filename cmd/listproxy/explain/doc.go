// Package explain is listproxy policy explain: what becomes of a request, and why. It says so from
// the policy alone (explain.go), or asks a running listproxy (running.go).
package explain
