package telemetry

import (
	"context"
	"math"
	"runtime/debug"
	"testing"

	"go.opentelemetry.io/otel/sdk/resource"
)

// The limits are those that are set, whoever set them.
func TestReadRuntime(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(3<<30), debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(percent) })
	if got := ReadRuntime(); got.MemoryLimit != 3<<30 || got.GCPercent != 70 || got.Memory <= 0 || got.Processors <= 0 {
		t.Errorf("%+v", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(-1)
	if got := ReadRuntime(); got.MemoryLimit != 0 || got.GCPercent != -1 {
		t.Errorf("without limits %+v", got)
	}
}

func TestTracesStatus(t *testing.T) {
	t.Setenv(envExporter, "otlp")
	for _, tt := range []struct{ name, arg, want string }{
		{"", "", "parentbased_always_on"},
		{"", "0.5", "parentbased_always_on"},
		{"always_off", "", "always_off"},
		{"traceidratio", "", "traceidratio 1"},
		{"parentbased_traceidratio", "0.01", "parentbased_traceidratio 0.01"},
	} {
		t.Setenv(envSampler, tt.name)
		t.Setenv(envSamplerArg, tt.arg)
		traces, err := NewTraces(t.Context(), resource.Empty())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = traces.Shutdown(context.Background()) })
		if got := traces.Status(); got != (TracesStatus{Enabled: true, Sampler: tt.want}) {
			t.Errorf("%q %q: %+v, want %q", tt.name, tt.arg, got, tt.want)
		}
	}
	if got := (&Traces{}).Status(); got != (TracesStatus{}) {
		t.Errorf("without traces: %+v", got)
	}
}
