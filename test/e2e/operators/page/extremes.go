package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

// hostile is what somebody may try to write into the page, without a place to break it.
var hostile = "<img src=x onerror=console.error(1)>\u202e" + strings.Repeat("W", 300)

// lookAtExtremes looks at pages that no demo has: before the first list, with very many
// collections, and with the API server away and words that are meant to do harm.
func lookAtExtremes(ctx context.Context, b *browser, dir string) error {
	var errs []error
	for _, extreme := range []struct {
		name   string
		status statusz.Status
		want   expected
	}{
		{"empty-", statusz.Status{Healthy: true}, expected{"✓ healthy", 0}},
		{"many-", many(), expected{"✓ healthy", 500}},
		{"down-", down(), expected{"✗ not healthy", 500}},
	} {
		handler, err := statusz.Handler(func() statusz.Status {
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
func many() statusz.Status {
	lag, share := 86399.0, 0.99951
	s := statusz.Status{
		Version: "v1.2.3-rc.4+0123456789abcdef", GoVersion: "go1.26.0", Upstream: "https://" + strings.Repeat("a", 60) + ".example.com:6443",
		Uptime: 1e9, Healthy: true, Checks: []statusz.Check{{Name: "serving", OK: true}},
		Lists:  statusz.Lists{Answered: 1e15, Forwarded: 1e15, Streaming: 1e15, Share: &share, SavedBytes: 1 << 60, Other: 1e15, Refused: 1e15},
		Memory: statusz.Memory{Stored: 1 << 45, StoredBound: 1 << 46, Compressed: 1 << 40, CompressedBound: 1 << 41},
		Traces: statusz.Traces{Enabled: true, Sampler: "parentbased_traceidratio 0.000001"},
		Policy: statusz.Policy{File: "/" + strings.Repeat("long/", 60) + "policy.yaml", SHA256: strings.Repeat("0123456789abcdef", 4)},
	}
	s.SelfChecks.Interval = 3600
	for i := range 500 {
		resource := fmt.Sprintf("%s%03d.%s.example.com", strings.Repeat("resource", 7), i, strings.Repeat("group", 12))
		c := statusz.Collection{
			Resource: resource, Version: "v1alpha1", Representation: "metadata-protobuf", State: statusz.StateLive,
			Objects: 123456789, Versions: 1, Bytes: 1 << 45, Revision: 1<<64 - 1, Lag: &lag, History: 3600, Window: 3600, Restarts: 1e9,
			SelfCheck: statusz.SelfCheck{Result: "inconclusive", Age: &lag},
		}
		for from := uint64(1); from < 8; from += 2 {
			c.Spans = append(c.Spans, statusz.Span{From: from, To: from})
		}
		if i%7 == 0 {
			c.State = "not-permitted"
		}
		if i < 7 {
			c.SelfCheck = statusz.SelfCheck{Result: "mismatch", Age: &lag, Mismatches: 1e6, MismatchAge: &lag}
			s.SelfChecks.Mismatches = append(s.SelfChecks.Mismatches, statusz.Mismatch{
				Resource: c.Resource, Version: c.Version, Representation: c.Representation, Mismatches: 1e6, Last: time.Now(), Age: lag,
			})
		}
		s.Collections = append(s.Collections, c)
		s.Resources = append(s.Resources, statusz.Resource{Resource: resource, Answered: 1e15, Forwarded: 1e12, Share: &share, Reason: "unknown-resource", ReasonLists: 1e12})
		s.Eager = append(s.Eager, statusz.Eager{Resource: resource, Version: "v1alpha1", Representation: "metadata-protobuf"})
		s.Policy.Rules = append(s.Policy.Rules, statusz.Rule{
			Resource: resource, Cache: "eager", Representations: []string{"json", "protobuf", "metadata-json", "metadata-protobuf"},
			History: 3600, MaxBytes: 1 << 45, Idle: 1e9, LimitAtZero: statusz.LimitHonoured, SameForEveryone: true, Source: s.Policy.File + ":100000",
		})
	}
	for i := range 7 {
		s.Endpoints = append(s.Endpoints, statusz.Endpoint{
			Address: fmt.Sprintf("[2001:db8:1234:5678:9abc:def0:1234:%04x]:65535", i), State: "up", Meaning: "up",
			Seconds: 1e9, Version: "v1.36.3-vendor.1+0123456789abcdef", Connections: 1e15,
		})
	}
	for range 50 {
		s.Callers = append(s.Callers, statusz.Caller{UserAgent: strings.Repeat("a", 64), Lists: 1e15, Excess: 1, Reason: "unknown-resource"})
	}
	return s
}

// down is many, with the API server away, and hostile words in all places.
func down() statusz.Status {
	s := many()
	s.Healthy, s.Version, s.Upstream, s.Policy.File, s.Traces.Sampler = false, hostile, hostile, hostile, hostile
	s.Checks = []statusz.Check{{Name: "discovery"}, {Name: "feeds", Message: hostile}, {Name: hostile, Message: hostile}}
	s.Lists.Reasons = []statusz.Reason{{Reason: hostile, Lists: 1, Meaning: hostile}}
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
	s.Flags = []statusz.Flag{{Name: hostile, Value: hostile, Set: true}}
	return s
}
