package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
)

// tracePatience is how long a trace may take to arrive: both processes send theirs every few
// seconds.
const tracePatience = time.Minute

// trace sends a request that is forwarded, under a trace of its own, waits until kube-apiserver's
// part of it has arrived too, and says where to look at it.
func (s *scene) trace(ctx context.Context) error {
	client, err := newClient(s.proxy.RESTConfig(s.cp.RESTConfig(controlplane.Admin)))
	if err != nil {
		return fmt.Errorf("a client to trace: %w", err)
	}
	defer client.HTTP.CloseIdleConnections()
	var id [24]byte
	_, _ = rand.Read(id[:])
	traceID := hex.EncodeToString(id[:16])
	traced := client.With("Traceparent", "00-"+traceID+"-"+hex.EncodeToString(id[16:])+"-01")
	if _, err := traced.Get(ctx, "/api/v1/namespaces/team-a/pods?limit=5"); err != nil {
		return fmt.Errorf("a request to trace: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, tracePatience)
	defer cancel()
	if err := s.cp.AwaitTrace(ctx, traceID, func(trace []byte) bool {
		return bytes.Contains(trace, []byte(`"serviceName":"listproxy"`)) && bytes.Contains(trace, []byte(`"serviceName":"apiserver"`))
	}); err != nil {
		return err
	}
	jaeger := s.cp.JaegerURL()
	say(s.out, traceInstructions, jaeger, traceID)
	return nil
}

// traceInstructions are for the Jaeger of this repository, which is built from its Go module: that
// has the query API, and not the pages.
const traceInstructions = `
Traces, in Jaeger: what was asked of listproxy, and one list that went on to kube-apiserver.

  %[1]s/search?service=listproxy
  %[1]s/trace/%[2]s

This Jaeger is built from its Go module, which comes without its pages: as JSON, and for another
Jaeger's upload, they are at

  %[1]s/api/traces?service=listproxy&limit=20
  %[1]s/api/traces/%[2]s
`
