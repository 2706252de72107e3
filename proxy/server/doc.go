// Package server bounds what clients do with connections, whatever they ask for.
//
//   - stall.go, stallbody.go: clients that do not read their answer or send their body are cut off
//   - bodylimit.go: how long a body may be
//   - letgo.go: connections are let go while the process ends
package server
