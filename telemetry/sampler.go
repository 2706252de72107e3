package telemetry

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

const (
	// forcedPerSecond is how many traces a second callers can cause by asking for them in their
	// traceparent.
	forcedPerSecond = 10
	// defaultSampler is that of the specification.
	defaultSampler = "parentbased_always_on"
	// everyTrace is the ratio of the specification where none is given.
	everyTrace = 1.0
)

// samplerKind is a sampler of the specification.
type samplerKind struct {
	// parentBased: what the caller says about sampling counts.
	parentBased bool
	// root makes the sampler for where it does not; ratio is for those that have one.
	root func(ratio float64) sdktrace.Sampler
	// ratio: it takes one.
	ratio bool
}

// samplerKinds are those of the specification that the SDK has, by their values of
// OTEL_TRACES_SAMPLER.
func samplerKinds() map[string]samplerKind {
	on := func(float64) sdktrace.Sampler { return sdktrace.AlwaysSample() }
	off := func(float64) sdktrace.Sampler { return sdktrace.NeverSample() }
	return map[string]samplerKind{
		"always_on":                {root: on},
		"always_off":               {root: off},
		"traceidratio":             {root: sdktrace.TraceIDRatioBased, ratio: true},
		"parentbased_always_on":    {root: on, parentBased: true},
		"parentbased_always_off":   {root: off, parentBased: true},
		"parentbased_traceidratio": {root: sdktrace.TraceIDRatioBased, parentBased: true, ratio: true},
	}
}

// newSampler makes a sampler from the environment's values; empty is parentbased_always_on. For a
// wrong value, the SDK would only log a message and then sample everything; here it is an error
// that names the variable.
func newSampler(name, arg string) (*boundedSampler, error) {
	if name == "" {
		name = defaultSampler
	}
	kinds := samplerKinds()
	kind, known := kinds[name]
	if !known {
		return nil, fmt.Errorf("%s=%q is not known: choose one of %s", envSampler, name,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	part := everyTrace
	if kind.ratio && arg != "" {
		var err error
		if part, err = strconv.ParseFloat(arg, 64); err != nil || math.IsNaN(part) || part < 0 || part > 1 {
			return nil, fmt.Errorf("%s=%q is not a part of all traces: write a number from 0 to 1", envSamplerArg, arg)
		}
	}
	words := name
	if kind.ratio {
		words += " " + strconv.FormatFloat(part, 'g', -1, 64)
	}
	return &boundedSampler{
		words: words, root: kind.root(part), parentBased: kind.parentBased,
		forced: rate.NewLimiter(forcedPerSecond, forcedPerSecond),
	}, nil
}

// boundedSampler is a sampler of the specification, with a limit on what callers decide, since
// anybody can write a traceparent that asks for sampling.
//
//   - Below a span of listproxy's own: like that span.
//   - Without a traceparent: as the root sampler says.
//   - With one, if the sampler is parentbased_ and the caller is not distrusted ([DistrustParent]):
//     "not sampled" is always followed, "sampled" at most forcedPerSecond times a second.
//   - Otherwise as the root sampler says, but by a random ID: the caller can choose the trace's.
//
// It is safe for concurrent use.
type boundedSampler struct {
	words       string // its name in the specification, and its ratio if it has one
	root        sdktrace.Sampler
	parentBased bool
	forced      *rate.Limiter
}

var _ sdktrace.Sampler = (*boundedSampler)(nil)

// ShouldSample implements sdktrace.Sampler.
func (s *boundedSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	switch {
	case !parent.IsValid():
		return s.root.ShouldSample(p)
	case !parent.IsRemote():
		return sampledAs(parent.IsSampled(), p)
	case s.parentBased && !distrusted(p.ParentContext):
		if !parent.IsSampled() {
			return sampledAs(false, p)
		}
		if s.forced.Allow() {
			return sampledAs(true, p)
		}
	}
	p.TraceID = drawnID()
	return s.root.ShouldSample(p)
}

// Description implements sdktrace.Sampler.
func (s *boundedSampler) Description() string { return "listproxy/" + s.words }

func sampledAs(sampled bool, p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if sampled {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return sdktrace.NeverSample().ShouldSample(p)
}

// drawnID returns a random ID to sample by. It must be evenly distributed, but need not be secret.
func drawnID() (id trace.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()) // #nosec G404 -- see above
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()) // #nosec G404 -- see above
	return id
}

type distrustKey struct{}

// DistrustParent returns a context in which what the caller's traceparent says about sampling does
// not count. A span that begins in it is still a part of the caller's trace.
func DistrustParent(ctx context.Context) context.Context {
	return context.WithValue(ctx, distrustKey{}, true)
}

func distrusted(ctx context.Context) bool {
	is, _ := ctx.Value(distrustKey{}).(bool)
	return is
}
