package statusz

import (
	"cmp"
	"slices"
	"time"
)

// Status is the content of the status page, and its form as JSON. Names and meanings of members
// stay the same in later versions; members may be added. Numbers of requests count since the
// process began. Times are in seconds, sizes in bytes.
type Status struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Upstream is the API server's address: scheme, host and port.
	Upstream string    `json:"upstream"`
	Time     time.Time `json:"time"`
	Uptime   float64   `json:"uptimeSeconds"`

	// Healthy is true if all Checks are OK.
	Healthy bool    `json:"healthy"`
	Checks  []Check `json:"checks"`

	// UpstreamState is the state of the API server; absent if it is not checked.
	UpstreamState *UpstreamState `json:"upstreamState,omitempty"`

	// Endpoints are the API servers that --upstream names, in its order; absent without it.
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	Lists Lists `json:"lists"`
	// Recent counts how requests were answered in the last five minutes (or since the process began,
	// if that is less), Total since it began; Inflight is what is in flight now.
	Recent   Traffic  `json:"recent"`
	Total    Traffic  `json:"total"`
	Inflight Inflight `json:"inflight"`
	// Resources are those that were listed; the one with the most lists comes first.
	Resources   []Resource   `json:"resources"`
	Collections []Collection `json:"collections"`
	SelfChecks  SelfChecks   `json:"selfChecks"`
	Memory      Memory       `json:"memory"`
	// Ends says when certificates and listproxy's own token end; the first to end comes first.
	Ends []End `json:"ends"`
	// Callers are the programs whose lists were forwarded most often, in this order.
	Callers []Caller `json:"callers"`
	// Policy is the policy in force.
	Policy Policy `json:"policy"`
	// Eager are the collections that are loaded before anybody asks, in the order of the policy and
	// then of the command line.
	Eager   []Eager `json:"eager"`
	Runtime Runtime `json:"runtime"`
	Traces  Traces  `json:"traces"`
	// Flags are all flags, as they are in force.
	Flags []Flag `json:"flags"`
}

// Check is one thing that must be right.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// Endpoint is an API server.
type Endpoint struct {
	// Address is its host:port.
	Address string `json:"address"`
	// State is "up", "not-ready", "slow", "unreachable" or [EndpointUnknown], Meaning the same in
	// plain words, and Seconds for how long it has been so.
	State   string  `json:"state"`
	Meaning string  `json:"meaning"`
	Seconds float64 `json:"stateSeconds"`
	// Version is what it says of itself; absent if that is not heard.
	Version string `json:"version,omitempty"`
	// Connections to it that are open.
	Connections int64 `json:"connections"`
	// Error is why the last check did not find it up; absent if it did.
	Error string `json:"error,omitempty"`
}

// EndpointUnknown is the state of an API server that was not checked yet.
const EndpointUnknown = "unknown"

// Lists is what became of lists.
type Lists struct {
	// Answered from memory.
	Answered int64 `json:"answered"`
	// Forwarded are the lists that the API server answered, without streaming lists.
	Forwarded int64 `json:"forwarded"`
	// Streaming are streaming lists (sendInitialEvents) that were forwarded and succeeded, counted
	// when they begin.
	Streaming int64 `json:"streaming"`
	// Refused are requests of any kind that listproxy itself refused.
	Refused int64 `json:"refused"`
	// Other are forwarded requests for anything else: writes, watches, single objects.
	Other int64 `json:"other"`
	// Share of lists answered from memory among all lists, streaming ones included, from 0 to 1;
	// absent if there were none.
	Share *float64 `json:"share,omitempty"`
	// SavedBytes did not have to be encoded by the API server.
	SavedBytes int64 `json:"savedBytes"`
	// Reasons why lists were forwarded, the most frequent first.
	Reasons []Reason `json:"reasons"`
	// Newest is what became of those that asked for the newest state.
	Newest Newest `json:"newest"`
}

// Newest is what became of lists of the newest state, those that name no resourceVersion.
type Newest struct {
	// Proven were answered from memory, once it was proven that it has that state.
	Proven int64 `json:"proven"`
	// Forwarded are all others.
	Forwarded int64 `json:"forwarded"`
	// Estimated are those of them that were forwarded because --consistent-lists is off, and of
	// which it is known what it would have done; WouldAnswer those that it would have had answered
	// from memory.
	Estimated   int64 `json:"estimated"`
	WouldAnswer int64 `json:"wouldAnswer"`
}

// All is how many lists there were.
func (l Lists) All() int64 { return l.Answered + l.Forwarded + l.Streaming }

// SetShare sets Share from the counts.
func (l *Lists) SetShare() { l.Share = shareOf(l.Answered, l.All()) }

// shareOf is a part of all, nil of nothing.
func shareOf(part, all int64) *float64 {
	if all <= 0 {
		return nil
	}
	share := float64(part) / float64(all)
	return &share
}

// Resource is what became of the lists of one resource. Its counts are as in [Lists].
type Resource struct {
	// Resource is "deployments.apps", or "other" for all that are not counted by name.
	Resource  string   `json:"resource"`
	Answered  int64    `json:"answered"`
	Forwarded int64    `json:"forwarded"`
	Streaming int64    `json:"streaming"`
	Share     *float64 `json:"share,omitempty"`
	// Reason is the most frequent one of those that were not answered from memory, and ReasonLists
	// how many it was; absent if all were.
	Reason      string `json:"reason,omitempty"`
	ReasonLists int64  `json:"reasonLists,omitempty"`
}

// All is how many lists there were.
func (r Resource) All() int64 { return r.Answered + r.Forwarded + r.Streaming }

// SetShare sets Share from the counts.
func (r *Resource) SetShare() { r.Share = shareOf(r.Answered, r.All()) }

// Reason is a reason to forward lists.
type Reason struct {
	Reason string `json:"reason"`
	Lists  int64  `json:"lists"`
	// Meaning is the reason in plain words.
	Meaning string `json:"meaning"`
}

// Collection is one collection.
type Collection struct {
	Resource       string `json:"resource"` // "deployments.apps"
	Version        string `json:"version"`
	Representation string `json:"representation"`
	// State is "live" if lists of the newest state are answered, or else the reason why not.
	State    string `json:"state"`
	Objects  int    `json:"objects"`
	Versions int    `json:"versions"`
	Bytes    int64  `json:"bytes"`
	// Revision is the newest that is known; 0 if none is.
	Revision uint64 `json:"revision"`
	// Lag is how old the newest state may be: the time since the API server was asked for the
	// revision that it has come to; absent if there was none.
	Lag *float64 `json:"lagSeconds,omitempty"`
	// Bound is the lag from which on the newest state is not given any more.
	Bound float64 `json:"boundSeconds"`
	// Idle is the time since a request last asked for the collection.
	Idle float64 `json:"idleSeconds"`
	// History is how far back a revision can be asked for, and Window how far it is to reach.
	History float64 `json:"historySeconds"`
	Window  float64 `json:"windowSeconds"`
	// Spans, oldest first, are the revisions that are known without a gap.
	Spans []Span `json:"spans"`
	// Restarts is how often the state was loaded again after the first time.
	Restarts int64 `json:"restarts"`
	// Watches is how many watches of it are answered from memory now.
	Watches int64 `json:"watches"`
	// SelfCheck is what self-checks found of it, and of those of its like before.
	SelfCheck SelfCheck `json:"selfCheck"`
}

// StateLive is the state of a collection that has its newest state.
const StateLive = "live"

// Name says which collection it is, as people do.
func (c Collection) Name() string { return c.Resource + "/" + c.Representation }

// Span is an interval of revisions, both ends included.
type Span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Memory is what is stored, and the bounds on it; 0 is no bound.
type Memory struct {
	Stored          int64 `json:"storedBytes"`
	StoredBound     int64 `json:"storedLimitBytes"`
	Compressed      int64 `json:"compressedBytes"`
	CompressedBound int64 `json:"compressedLimitBytes"`
}

// Caller is a program whose lists were forwarded.
type Caller struct {
	// UserAgent is the beginning of what the program calls itself (telemetry.UserAgent).
	UserAgent string `json:"userAgent"`
	// Lists that were forwarded and succeeded. It may be too high by Excess, since only so many
	// programs are remembered.
	Lists  int64 `json:"lists"`
	Excess int64 `json:"excess,omitempty"`
	// Reason is the most frequent one.
	Reason string `json:"reason"`
}

// Policy is a policy as it is in force: as it was read when the process began, with the defaults of
// the command line filled in.
type Policy struct {
	// File is --config; absent if there is none.
	File string `json:"file,omitempty"`
	// SHA256 is the digest of the file as it was read, in hexadecimal.
	SHA256 string `json:"sha256,omitempty"`
	// Rules, those of the file first, in its order.
	Rules []Rule `json:"rules"`
}

// Rule is what holds for a resource.
type Rule struct {
	// Resource is "deployments.apps", "*.apps" for a group, or [EverythingElse].
	Resource string `json:"resource"`
	// Cache is "eager", "onDemand" or "never"; with "never" there is no more than Source.
	Cache           string   `json:"cache"`
	Representations []string `json:"representations,omitempty"`
	History         float64  `json:"historySeconds,omitempty"`
	// MaxBytes is 0 without a bound of its own.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// Idle is 0 for never.
	Idle float64 `json:"idleSeconds,omitempty"`
	// LimitAtZero is "ignore" or "honour": what a limit means at resourceVersion=0.
	LimitAtZero     string `json:"limitAtZero,omitempty"`
	SameForEveryone bool   `json:"sameForEveryone,omitempty"`
	// ConsistentLists is "false", "true" or "always": which lists of the newest state are answered
	// from memory.
	ConsistentLists string `json:"consistentLists,omitempty"`
	// Watches are answered from memory.
	Watches bool `json:"watches,omitempty"`
	// NewestAsAny is how many callers get any state for the newest.
	NewestAsAny int `json:"newestAsAny,omitempty"`
	// Source is where the rule stands, "policy.yaml:12", or "built in".
	Source string `json:"source"`
}

// EverythingElse is the resource of the rule for those that have none.
const EverythingElse = "everything else"

const (
	// CacheNever is the Cache of what is not kept.
	CacheNever = "never"
	// LimitHonoured is the LimitAtZero that kube-apiserver's cache does not have.
	LimitHonoured = "honour"
	// ConsistentNever is the ConsistentLists of what is always forwarded.
	ConsistentNever = "false"
	// ConsistentFaster is the ConsistentLists of what memory may answer sooner.
	ConsistentFaster = "true"
)

// Eager is a collection that is loaded before anybody asks.
type Eager struct {
	Resource       string `json:"resource"`
	Version        string `json:"version"`
	Representation string `json:"representation"`
}

// Runtime is how the Go runtime uses memory.
type Runtime struct {
	// Memory is what counts against MemoryLimit: all that the runtime has of the system, without
	// what it has given back.
	Memory int64 `json:"memoryBytes"`
	// MemoryLimit is GOMEMLIMIT in force; 0 is none.
	MemoryLimit int64 `json:"memoryLimitBytes"`
	// GCPercent is GOGC in force; -1 is off.
	GCPercent int64 `json:"gcPercent"`
	// Processors is GOMAXPROCS in force.
	Processors int `json:"processors"`
}

// Traces is whether traces are sent, and of which requests.
type Traces struct {
	Enabled bool `json:"enabled"`
	// Sampler is what OTEL_TRACES_SAMPLER names, or the default, with its argument if it takes one;
	// absent if no traces are sent.
	Sampler string `json:"sampler,omitempty"`
}

// Flag is a flag of the command line.
type Flag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Set is true if it was given.
	Set bool `json:"set"`
}

// Sort puts lists of s into the order in which they are shown.
func (s *Status) Sort() {
	slices.SortFunc(s.Collections, func(a, b Collection) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Representation, b.Representation))
	})
	s.SelfChecks.sort()
	slices.SortFunc(s.Lists.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Lists, a.Lists), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(s.Resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(b.All(), a.All()), cmp.Compare(a.Resource, b.Resource))
	})
	slices.SortFunc(s.Callers, func(a, b Caller) int {
		return cmp.Or(cmp.Compare(b.Lists, a.Lists), cmp.Compare(a.UserAgent, b.UserAgent))
	})
}
