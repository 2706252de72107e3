package telemetry

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/test/expect"
)

// parentOf is the context of a request with a traceparent, or of a span of our own.
func parentOf(id trace.TraceID, sampled, remote bool) context.Context {
	config := trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, Remote: remote}
	if sampled {
		config.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(config))
}

// chosen is the ID that every ratio samples: its part that counts is the least.
func chosen() trace.TraceID {
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], 1)
	return id
}

func samples(ctx context.Context, s sdktrace.Sampler, id trace.TraceID) bool {
	return s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: id}).Decision == sdktrace.RecordAndSample
}

func TestSampler(t *testing.T) {
	id := chosen()
	for _, tt := range []struct {
		name, arg                                        string
		none, unsampled, sampled, stranger, own, ownNone bool
	}{
		{name: "", none: true, sampled: true, stranger: true, own: true},
		{name: "parentbased_always_on", none: true, sampled: true, stranger: true, own: true},
		{name: "parentbased_always_off", sampled: true, own: true},
		{name: "parentbased_traceidratio", arg: "0", sampled: true, own: true},
		{name: "always_on", none: true, unsampled: true, sampled: true, stranger: true, own: true},
		{name: "always_off", own: true},
		{name: "traceidratio", none: true, unsampled: true, sampled: true, stranger: true, own: true},
		{name: "traceidratio", arg: "0", own: true},
		// The ID would be sampled: it is not the caller's to choose.
		{name: "traceidratio", arg: "0.000000000001", none: true, own: true},
		{name: "parentbased_traceidratio", arg: "0.000000000001", none: true, sampled: true, own: true},
	} {
		t.Run(tt.name+" "+tt.arg, func(t *testing.T) {
			s, err := newSampler(tt.name, tt.arg)
			expect.NoError(t, err)
			for what, c := range map[string]struct {
				ctx  context.Context
				want bool
			}{
				"no traceparent":            {context.Background(), tt.none},
				"not sampled by the caller": {parentOf(id, false, true), tt.unsampled},
				"sampled by the caller":     {parentOf(id, true, true), tt.sampled},
				"sampled by a stranger":     {DistrustParent(parentOf(id, true, true)), tt.stranger},
				"below a span that is":      {DistrustParent(parentOf(id, true, false)), tt.own},
				"below a span that is not":  {parentOf(id, false, false), tt.ownNone},
			} {
				if got := samples(c.ctx, s, id); got != c.want {
					t.Errorf("%s: sampled %v", what, got)
				}
			}
		})
	}
}

// TestForcedTracesAreBounded: by the second, whoever asks for them.
func TestForcedTracesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSampler("parentbased_always_off", "")
		expect.NoError(t, err)
		count := func() (n int) {
			for range 10 * forcedPerSecond {
				if samples(parentOf(chosen(), true, true), s, chosen()) {
					n++
				}
			}
			return n
		}
		if n := count(); n != forcedPerSecond {
			t.Errorf("%d at once, want %d", n, forcedPerSecond)
		}
		time.Sleep(time.Second) // of the test's own clock
		if n := count(); n != forcedPerSecond {
			t.Errorf("%d a second later, want %d", n, forcedPerSecond)
		}
	})
}

func TestSamplerKeepsTheTracestate(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=theirs")
	expect.NoError(t, err)
	parent := trace.SpanContextFromContext(parentOf(chosen(), true, true)).WithTraceState(state)
	for name := range samplerKinds() {
		s, err := newSampler(name, "")
		expect.NoError(t, err)
		ctx := DistrustParent(trace.ContextWithSpanContext(t.Context(), parent))
		if got := s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: chosen()}).Tracestate.String(); got != "vendor=theirs" {
			t.Errorf("%s: tracestate %q", name, got)
		}
	}
}
