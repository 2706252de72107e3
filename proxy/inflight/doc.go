// Package inflight bounds what is under way and shares it between callers: requests, bodies of
// answers ([Bounds]) and connections ([Connections]). One caller's slow readers cannot hold all of
// it. What a share belongs to, a [ShareKey], is not decided here.
package inflight
