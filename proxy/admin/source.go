package admin

import (
	"math"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
)

// Source reads the state of listproxy's parts: for /readyz ([Source.Checks]), the status page ([Source.ReadStatus]) and metrics
// ([Source.Collect]). The functions in its fields must not block, and must be safe for concurrent use. Then Source is safe for
// concurrent use, too.
type Source struct {
	Version string
	// Address is the URL of the API server, without a path.
	Address string
	// Started is the time at which the process began.
	Started time.Time

	// Draining reports whether shutdown has begun.
	Draining func() bool
	// DiscoveryReady reports whether the resources of the API server are known.
	DiscoveryReady func() bool
	// DefinitionsReady reports whether the definitions of custom resources are known.
	DefinitionsReady func() bool
	// ServersReady reports whether the API servers behind the upstream are known.
	ServersReady func() bool
	// Health returns the state of the API server.
	Health func() upstream.Diagnosis

	// Collections are the resources that listproxy keeps in memory.
	Collections collections
	// Eager returns the state of the eager collections, which are loaded at the start (--eager). Some may not exist yet.
	Eager func() []proxy.EagerStats
	// Compression returns the counts of the compressor.
	Compression func() gzip.CompressorStats
	// ReviewLookups counts lookups of a caller's right. A hit found an answer that was remembered, a miss found none.
	ReviewLookups func() (hits, misses uint64)
	// Inflight returns the state of each limiter, of requests or bytes, by its name in metrics.
	Inflight func() map[string]limits.Stats
	// Connections has the connections of each port, by the port's name.
	Connections map[string]*limits.Connections
	// Certificates returns the times at which the certificates in use expire, by their use, such as "serving". A time is zero
	// if it is not known.
	Certificates func() map[string]time.Time

	// Metrics gathers all metrics of the process. The status page takes its counts from them, so that both agree.
	Metrics prometheus.Gatherer
}

// collections is the part of [snapshot.Collections] that a Source reads.
type collections interface {
	Stats() []snapshot.CollectionStats
	Stored() (bytes, bound int64)
	SelfChecks() map[snapshot.CheckResult]uint64
	Mismatches() map[snapshot.CollectionKey]snapshot.MismatchStats
}

// ReadStatus returns the current status.
func (s *Source) ReadStatus() Status {
	now := time.Now()
	health := s.Health()
	status := Status{
		Version:  s.Version,
		Time:     now.UTC(),
		Uptime:   secondsSince(s.Started, now),
		Upstream: newUpstream(s.Address, health, now),
		// A nil slice would be null in JSON.
		Reasons: []Reason{}, Collections: []Collection{}, Mismatches: []Mismatch{},
	}
	for _, c := range s.Collections.Stats() {
		status.Collections = append(status.Collections, newCollection(c, now))
	}
	for key, mismatches := range s.Collections.Mismatches() {
		status.Mismatches = append(status.Mismatches, Mismatch{
			CollectionName: newCollectionName(key),
			Times:          mismatches.Count,
			LastAge:        secondsSince(mismatches.Last, now),
		})
	}
	status.Memory.Stored, status.Memory.StoredLimit = s.Collections.Stored()
	status.Memory.Compressed = s.Compression().Kept
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 { // -1 changes nothing
		status.Memory.ProcessLimit = limit
	}
	status.readMetrics(s.Metrics)

	// To be healthy, listproxy needs an API server that is OK now. To be ready, it needs one that was OK once (see Checks).
	upstreamOK := health.Condition == upstream.ConditionOK
	status.Checks = append(s.newChecks(health, upstreamOK), checkFeeds(status.Collections))
	status.Healthy = allOK(status.Checks)
	status.sort()
	return status
}

func newUpstream(address string, health upstream.Diagnosis, now time.Time) Upstream {
	u := Upstream{
		Address:  address,
		State:    string(health.Condition),
		StateAge: secondsSince(health.Since, now),
		Error:    health.Problem,
		Advice:   health.Advice,
	}
	if !health.Answered.IsZero() {
		u.AnswerAge = new(secondsSince(health.Answered, now))
	}
	return u
}

// secondsSince returns the seconds from then to now. It returns 0 if then is later than now: another goroutine may have set
// then after this goroutine has read now.
func secondsSince(then, now time.Time) float64 { return max(0, now.Sub(then).Seconds()) }

func newCollectionName(key snapshot.CollectionKey) CollectionName {
	return CollectionName{Resource: key.GroupResource().String(), Version: key.Version, Representation: string(key.Representation)}
}

func newCollection(c snapshot.CollectionStats, now time.Time) Collection {
	collection := Collection{
		CollectionName: newCollectionName(c.Key),
		State:          StateLive,
		OldestRevision: c.From,
		NewestRevision: c.To,
		Objects:        c.Objects,
		Bytes:          c.Bytes,
		Watches:        c.Watches.Open,
		IdleTime:       secondsSince(c.LastUse, now),
		HistoryWindow:  c.Window.Seconds(),
	}
	if c.Unavailable != reason.None {
		collection.State = string(c.Unavailable)
	}
	if !c.CurrentAt.IsZero() {
		// Unlike secondsSince, clock.Age counts the time for which the machine was suspended.
		collection.Staleness = new(clock.Age(c.CurrentAt, now).Seconds())
	}
	if !c.Oldest.IsZero() {
		collection.HistoryLength = secondsSince(c.Oldest, now)
	}
	return collection
}
