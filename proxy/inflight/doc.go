// Package inflight bounds how many requests, bytes of answers ([Bounds]) and connections
// ([Connections]) there are at a time, and shares them between callers. So one caller's slow
// readers cannot hold all of them. Whose share a request uses, its [ShareKey], is decided by
// package authn.
package inflight
