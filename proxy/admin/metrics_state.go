package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
)

// State has what is read when somebody scrapes; between two scrapes it costs nothing. A nil field
// has no metrics.
type State struct {
	Collections func() []snapshot.CollectionStats
	// Staleness is the age from which on a newest state is no longer given.
	Staleness time.Duration
	// Stored is how many bytes all collections have together, and the bound, 0 if there is none.
	Stored      func() (bytes, bound int64)
	Compression func() gzip.CompressorStats
	// SelfChecks is how many comparisons of collections with the upstream had which result.
	SelfChecks func() map[checks.Result]uint64
	Reviews    func() authz.Stats
	Inflight   func() map[string]limits.Stats
	// Connections are those of the ports, by name.
	Connections map[string]*limits.Connections
	// Certificates says when those in use end.
	Certificates func() []certs.Expiry
	// Health says how the API server is.
	Health func() upstream.HealthStats
}

// RegisterState makes metrics of s.
func RegisterState(meters metric.MeterProvider, s State) error {
	meter := meters.Meter(observe.Instrumentation)
	var errs []error
	if s.Collections != nil {
		errs = append(errs, registerCollections(meter, s.Collections, s.Staleness), registerWatches(meter, s.Collections))
	}
	if s.Stored != nil {
		errs = append(errs, registerStored(meter, s.Stored))
	}
	if s.Compression != nil {
		errs = append(errs, registerCompression(meter, s.Compression))
	}
	if s.SelfChecks != nil {
		errs = append(errs, registerSelfChecks(meter, s.SelfChecks))
	}
	if s.Reviews != nil {
		errs = append(errs, registerReviews(meter, s.Reviews))
	}
	if s.Inflight != nil {
		errs = append(errs, registerInflight(meter, s.Inflight))
	}
	if s.Connections != nil {
		errs = append(errs, registerConnections(meter, s.Connections))
	}
	if s.Certificates != nil {
		errs = append(errs, registerCertificates(meter, s.Certificates))
	}
	if s.Health != nil {
		errs = append(errs, registerUpstream(meter, s.Health))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// instruments makes instruments that are read by a callback, and keeps the first error.
type instruments struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

func (i *instruments) note(o metric.Observable, err error) {
	i.all = append(i.all, o)
	i.err = errors.Join(i.err, err)
}

func (i *instruments) gauge(name, unit, help string) metric.Int64Observable {
	g, err := i.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	i.note(g, err)
	return g
}

func (i *instruments) seconds(name, help string) metric.Float64Observable {
	g, err := i.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(help))
	i.note(g, err)
	return g
}

func (i *instruments) counter(name, unit, help string) metric.Int64Observable {
	c, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	i.note(c, err)
	return c
}

func (i *instruments) read(observe func(metric.Observer)) error {
	if i.err != nil {
		return i.err
	}
	_, err := i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(o)
		return nil
	}, i.all...)
	return err
}

func registerCollections(meter metric.Meter, read func() []snapshot.CollectionStats, staleness time.Duration) error {
	i := &instruments{meter: meter}
	live := i.gauge("listproxy.collection.live", "{collection}", "1 if lists of the newest state can be answered, else 0 and why (reason).")
	objects := i.gauge("listproxy.collection.objects", "{object}", "Objects in the newest state.")
	bytes := i.gauge("listproxy.collection.size", "By", "Bytes stored: objects, their history, and an estimate of the structures around them.")
	versions := i.gauge("listproxy.collection.versions", "{version}", "States that are kept.")
	history := i.seconds("listproxy.collection.history", "How far back a revision can be asked for.")
	gaps := i.gauge("listproxy.collection.gaps", "{gap}", "Gaps: intervals of the history in which the state is not known.")
	revision := i.gauge("listproxy.feed.revision", "{revision}", "The newest revision that is known.")
	lag := i.seconds("listproxy.feed.lag", "How old the newest state is at most: the time since the API server was asked for the revision "+
		"that the state has reached. It grows between two probes, and on a quiet resource between two bookmarks.")
	loads := i.counter("listproxy.feed.loads", "{load}", "Complete states that were loaded, the first included.")
	resumes := i.counter("listproxy.feed.resumes", "{resume}",
		"Watches that broke and were resumed without loading the state again. "+
			"Its history may be gone if it had to be compared with the API server's.")
	restarts := i.counter("listproxy.feed.restarts", "{restart}",
		"How often a state was lost and had to be loaded again, and why (cause). Each time leaves a gap.")
	return i.read(func(o metric.Observer) {
		now := time.Now()
		for _, s := range read() {
			which := []attribute.KeyValue{
				observe.LabelResource.String(s.Resource.GroupResource().String()),
				observe.LabelVersion.String(s.Resource.Version),
				observe.LabelRepresentation.String(string(s.Resource.Representation)),
			}
			set := metric.WithAttributeSet(attribute.NewSet(which...))
			up := int64(0)
			absence := absenceOf(s, now, staleness)
			if absence == reason.None {
				up = 1
			}
			o.ObserveInt64(live, up,
				metric.WithAttributeSet(attribute.NewSet(append(which, observe.LabelReason.String(observe.OrNone(string(absence))))...)))
			o.ObserveInt64(objects, int64(s.Objects), set)
			o.ObserveInt64(bytes, s.Bytes, set)
			o.ObserveInt64(versions, int64(s.Versions), set)
			o.ObserveInt64(gaps, int64(s.Gaps()), set)
			o.ObserveInt64(loads, int64(s.Feed.Loads), set)     // #nosec G115 -- a count
			o.ObserveInt64(resumes, int64(s.Feed.Resumes), set) // #nosec G115 -- a count
			for cause, n := range s.Feed.Losses {
				o.ObserveInt64(restarts, int64(n), // #nosec G115 -- a count
					metric.WithAttributeSet(attribute.NewSet(append(which, observe.LabelCause.String(string(cause)))...)))
			}
			if !s.Oldest.IsZero() {
				o.ObserveFloat64(history, now.Sub(s.Oldest).Seconds(), set)
			}
			if !s.Heard.IsZero() {
				o.ObserveFloat64(lag, clock.Age(s.Heard, now).Seconds(), set)
			}
			if revisionNow := s.Revision(); revisionNow > 0 {
				o.ObserveInt64(revision, int64(revisionNow), set) // #nosec G115 -- etcd's revisions are int64
			}
		}
	})
}

func registerStored(meter metric.Meter, read func() (bytes, bound int64)) error {
	i := &instruments{meter: meter}
	stored := i.gauge("listproxy.stored", "By", "Bytes that all collections store together, including what is reserved for those that load.")
	bound := i.gauge("listproxy.stored.limit", "By", "The bound on listproxy_stored_bytes (--cache-bytes); 0 is no bound.")
	return i.read(func(o metric.Observer) {
		used, limit := read()
		o.ObserveInt64(stored, used)
		o.ObserveInt64(bound, limit)
	})
}

// Whether something was found in a cache.
const (
	resultHit  = "hit"
	resultMiss = "miss"
)

func observeLookups(o metric.Observer, c metric.Int64Observable, hits, misses uint64) {
	o.ObserveInt64(c, int64(hits), metric.WithAttributes(observe.LabelResult.String(resultHit)))    // #nosec G115 -- a count
	o.ObserveInt64(c, int64(misses), metric.WithAttributes(observe.LabelResult.String(resultMiss))) // #nosec G115 -- a count
}

func registerCompression(meter metric.Meter, read func() gzip.CompressorStats) error {
	i := &instruments{meter: meter}
	lookups := i.counter("listproxy.compression.lookups", "{segment}",
		"Segments of lists that were compressed already (hit), or had to be compressed (miss).")
	compressed := i.counter("listproxy.compressed", "By",
		"Bytes that had to be compressed, counted before compression; segments that were kept compressed do not count.")
	size := i.gauge("listproxy.compression.size", "By", "Bytes kept of compressed segments.")
	return i.read(func(o metric.Observer) {
		s := read()
		observeLookups(o, lookups, s.Found, s.Made)
		o.ObserveInt64(compressed, s.Compressed)
		o.ObserveInt64(size, s.Kept)
	})
}

func registerReviews(meter metric.Meter, read func() authz.Stats) error {
	i := &instruments{meter: meter}
	lookups := i.counter("listproxy.review.lookups", "{lookup}",
		"Callers' rights that were remembered (hit), or had to be reviewed by the API server (miss).")
	return i.read(func(o metric.Observer) {
		s := read()
		observeLookups(o, lookups, s.Hits, s.Misses)
	})
}

func registerInflight(meter metric.Meter, read func() map[string]limits.Stats) error {
	i := &instruments{meter: meter}
	requests := i.gauge("listproxy.inflight.requests", "{request}",
		"Requests in flight: short ones, and those that run for long (watches, logs, execs and the like).")
	bytes := i.gauge("listproxy.inflight", "By", "Bytes of large lists from memory that are being written, before compression.")
	waiting := i.gauge("listproxy.inflight.waiting", "{request}", "Requests that wait for their turn.")
	callers := i.gauge("listproxy.inflight.callers", "{caller}", "Callers with requests in flight or waiting.")
	refusals := i.counter("listproxy.inflight.refusals", "{request}",
		"Requests for which there was no room, by the bound that was reached (kind) and why.")
	return i.read(func(o metric.Observer) {
		for name, s := range read() {
			kind := observe.LabelKind.String(name)
			set := metric.WithAttributeSet(attribute.NewSet(kind))
			if name == "bytes" {
				o.ObserveInt64(bytes, s.InUse)
			} else {
				o.ObserveInt64(requests, s.InUse, set)
			}
			o.ObserveInt64(waiting, int64(s.Waiting), set)
			o.ObserveInt64(callers, int64(s.Flows), set)
			for _, why := range limits.Overloads() {
				o.ObserveInt64(refusals, int64(s.Refused[why]), // #nosec G115 -- a count
					metric.WithAttributeSet(attribute.NewSet(kind, observe.LabelReason.String(string(why)))))
			}
		}
	})
}

// labelPort is a port's name, or that of several with one bound.
const labelPort = attribute.Key("port")

func registerConnections(meter metric.Meter, ports map[string]*limits.Connections) error {
	i := &instruments{meter: meter}
	open := i.gauge("listproxy.connections", "{connection}", "Open connections: of clients, tunnels included, and of the admin port.")
	limit := i.gauge("listproxy.connections.limit", "{connection}", "The bound on listproxy_connections (--max-connections); 0 is no bound.")
	return i.read(func(o metric.Observer) {
		for name, connections := range ports {
			set := metric.WithAttributeSet(attribute.NewSet(labelPort.String(name)))
			o.ObserveInt64(open, connections.Open(), set)
			o.ObserveInt64(limit, int64(connections.Most()), set)
		}
	})
}
