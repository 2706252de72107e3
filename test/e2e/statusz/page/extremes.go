package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/listproxy/listproxy/telemetry"
)

// hostile is what somebody may try to write into the page, without a place to break it.
var hostile = "<img src=x onerror=console.error(1)>\u202e" + strings.Repeat("W", 300)

// lookAtExtremes looks at pages that no demo has: before the first list, with very many collections, and with the
// API server away and words that are meant to do harm.
func lookAtExtremes(ctx context.Context, b *browser, dir string) error {
	var errs []error
	for _, extreme := range []struct {
		name   string
		status telemetry.Status
		want   expected
	}{
		{"empty-", telemetry.Status{Healthy: true}, expected{"✓ healthy", 0}},
		{"many-", many(), expected{"✓ healthy", 500}},
		{"down-", down(), expected{"✗ not healthy", 500}},
	} {
		handler, err := telemetry.StatusHandler(func() telemetry.Status {
			s := extreme.status
			s.Time = time.Now().UTC()
			return s
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		server := httptest.NewServer(handler)
		for _, s := range screens() {
			errs = append(errs, shoot(ctx, b, dir, extreme.name, server.URL+"/statusz", s, extreme.want))
		}
		server.Close()
	}
	return errors.Join(errs...)
}

// many has as much of everything as large clusters have.
func many() telemetry.Status {
	lag, share := 86399.0, 0.99951
	s := telemetry.Status{
		Version: "v1.2.3-rc.4+0123456789abcdef", GoVersion: "go1.26.0", Upstream: "https://" + strings.Repeat("a", 60) + ".example.com:6443",
		Uptime: 1e9, Healthy: true, Checks: []telemetry.StatusCheck{{Name: "serving", OK: true}},
		Lists:  telemetry.ListsStatus{Answered: 1e15, Forwarded: 1e15, Streaming: 1e15, Share: &share, SavedBytes: 1 << 60, Other: 1e15, Refused: 1e15},
		Memory: telemetry.MemoryStatus{Stored: 1 << 45, StoredBound: 1 << 46, Compressed: 1 << 40, CompressedBound: 1 << 41},
		Traces: telemetry.TracesStatus{Enabled: true, Sampler: "parentbased_traceidratio 0.000001"},
		Policy: telemetry.PolicyStatus{File: "/" + strings.Repeat("long/", 60) + "policy.yaml", SHA256: strings.Repeat("0123456789abcdef", 4)},
	}
	s.SelfChecks.Interval = 3600
	for i := range 500 {
		resource := fmt.Sprintf("%s%03d.%s.example.com", strings.Repeat("resource", 7), i, strings.Repeat("group", 12))
		c := telemetry.CollectionStatus{
			Resource: resource, Version: "v1alpha1", Representation: "metadata-protobuf", State: telemetry.StateLive,
			Objects: 123456789, Versions: 1, Bytes: 1 << 45, Revision: 1<<64 - 1, Lag: &lag, History: 3600, Window: 3600, Restarts: 1e9,
			SelfCheck: telemetry.SelfCheckStatus{Result: telemetry.SelfCheckInconclusive, Age: &lag},
		}
		for from := uint64(1); from < 8; from += 2 {
			c.Spans = append(c.Spans, telemetry.SpanStatus{From: from, To: from})
		}
		if i%7 == 0 {
			c.State = "not-permitted"
		}
		if i < 7 {
			c.SelfCheck = telemetry.SelfCheckStatus{Result: telemetry.SelfCheckMismatch, Age: &lag, Mismatches: 1e6, MismatchAge: &lag}
			s.SelfChecks.Mismatches = append(s.SelfChecks.Mismatches, telemetry.MismatchStatus{
				Resource: c.Resource, Version: c.Version, Representation: c.Representation, Mismatches: 1e6, Last: time.Now(), Age: lag,
			})
		}
		s.Collections = append(s.Collections, c)
		s.Resources = append(s.Resources, telemetry.ResourceStatus{Resource: resource, Answered: 1e15, Forwarded: 1e12, Share: &share, Reason: "unknown-resource", ReasonLists: 1e12})
		s.Eager = append(s.Eager, telemetry.EagerStatus{Resource: resource, Version: "v1alpha1", Representation: "metadata-protobuf"})
		s.Policy.Rules = append(s.Policy.Rules, telemetry.RuleStatus{
			Resource: resource, Cache: "eager", Representations: []string{"json", "protobuf", "metadata-json", "metadata-protobuf"},
			History: 3600, MaxBytes: 1 << 45, Idle: 1e9, LimitAtZero: telemetry.LimitHonoured, SameForEveryone: true, Source: s.Policy.File + ":100000",
		})
	}
	for i := range 7 {
		s.Endpoints = append(s.Endpoints, telemetry.EndpointStatus{
			Address: fmt.Sprintf("[2001:db8:1234:5678:9abc:def0:1234:%04x]:65535", i), State: telemetry.EndpointUp, Meaning: "up",
			Seconds: 1e9, Version: "v1.36.3-vendor.1+0123456789abcdef", Connections: 1e15,
		})
	}
	for range 50 {
		s.Callers = append(s.Callers, telemetry.CallerStatus{UserAgent: strings.Repeat("a", 64), Lists: 1e15, Excess: 1, Reason: "unknown-resource"})
	}
	return s
}

// down is many, with the API server away, and hostile words in all places.
func down() telemetry.Status {
	s := many()
	s.Healthy, s.Version, s.Upstream, s.Policy.File, s.Traces.Sampler = false, hostile, hostile, hostile, hostile
	s.Checks = []telemetry.StatusCheck{{Name: "discovery"}, {Name: "feeds", Message: hostile}, {Name: hostile, Message: hostile}}
	s.Lists.Reasons = []telemetry.ReasonStatus{{Reason: hostile, Lists: 1, Meaning: hostile}}
	for i := range s.Collections {
		c := &s.Collections[i]
		c.Resource, c.Version, c.State, c.Lag, c.Spans = hostile, hostile, hostile, nil, nil
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Address, e.State, e.Meaning, e.Version, e.Error = hostile, hostile, hostile, hostile, hostile
	}
	for i := range s.SelfChecks.Mismatches {
		m := &s.SelfChecks.Mismatches[i]
		m.Resource, m.Version, m.Representation = hostile, hostile, hostile
	}
	for i := range s.Callers {
		s.Callers[i].UserAgent, s.Callers[i].Reason = hostile, hostile
	}
	for i := range s.Resources {
		s.Resources[i].Resource, s.Resources[i].Reason = fmt.Sprint(hostile, i), hostile
	}
	for i := range s.Policy.Rules {
		s.Policy.Rules[i].Resource, s.Policy.Rules[i].Source = hostile, hostile
	}
	s.Flags = []telemetry.FlagStatus{{Name: hostile, Value: hostile, Set: true}}
	return s
}
