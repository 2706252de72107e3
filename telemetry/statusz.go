package telemetry

import (
	"cmp"
	"slices"
	"time"
)

// Status is what the status page says, and what it is as JSON. Names and meanings of its members
// stay; there may be more of them. Numbers of requests are since the process began. Times are in
// seconds, sizes in bytes.
type Status struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Upstream is the API server's address: scheme, host and port.
	Upstream string    `json:"upstream"`
	Time     time.Time `json:"time"`
	Uptime   float64   `json:"uptimeSeconds"`

	// Healthy is true if all Checks are OK.
	Healthy bool          `json:"healthy"`
	Checks  []StatusCheck `json:"checks"`

	Lists       ListsStatus        `json:"lists"`
	Collections []CollectionStatus `json:"collections"`
	Memory      MemoryStatus       `json:"memory"`
	// Callers are those whose lists were forwarded most often, the first one most often.
	Callers []CallerStatus `json:"callers"`
	// Flags are all flags, as they are in force.
	Flags []FlagStatus `json:"flags"`
}

// StatusCheck is one thing that must be right.
type StatusCheck struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// ListsStatus is what became of lists.
type ListsStatus struct {
	// Answered from memory.
	Answered int64 `json:"answered"`
	// Forwarded are the lists that the API server answered, without streaming lists.
	Forwarded int64 `json:"forwarded"`
	// Streaming are requests for streaming lists (sendInitialEvents) that succeeded. They are
	// watches, and forwarded like all watches.
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
	Reasons []ReasonStatus `json:"reasons"`
}

// SetShare sets Share from the counts.
func (l *ListsStatus) SetShare() {
	l.Share = nil
	if all := l.Answered + l.Forwarded + l.Streaming; all > 0 {
		share := float64(l.Answered) / float64(all)
		l.Share = &share
	}
}

// ReasonStatus is a reason to forward lists.
type ReasonStatus struct {
	Reason string `json:"reason"`
	Lists  int64  `json:"lists"`
	// Meaning is the reason in plain words.
	Meaning string `json:"meaning"`
}

// CollectionStatus is one collection.
type CollectionStatus struct {
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
	// Lag is the time since the API server last gave a sign of life; absent if it never did.
	Lag *float64 `json:"lagSeconds,omitempty"`
	// Idle is the time since a request last asked for the collection.
	Idle float64 `json:"idleSeconds"`
	// History is how far back a revision can be asked for, and Window how far it is to reach.
	History float64 `json:"historySeconds"`
	Window  float64 `json:"windowSeconds"`
	// Spans, oldest first, are the revisions that are known without a gap.
	Spans []SpanStatus `json:"spans"`
	// Restarts is how often the state was loaded again after the first time.
	Restarts int64 `json:"restarts"`
}

// StateLive is the state of a collection that has its newest state.
const StateLive = "live"

// Name says which collection it is, as people do.
func (c CollectionStatus) Name() string { return c.Resource + "/" + c.Representation }

// SpanStatus is an interval of revisions, both ends included.
type SpanStatus struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// MemoryStatus is what is stored, and the bounds on it; a bound of 0 is none.
type MemoryStatus struct {
	Stored          int64 `json:"storedBytes"`
	StoredBound     int64 `json:"storedLimitBytes"`
	Compressed      int64 `json:"compressedBytes"`
	CompressedBound int64 `json:"compressedLimitBytes"`
}

// CallerStatus is a program whose lists were forwarded.
type CallerStatus struct {
	// UserAgent is the beginning of what the program calls itself, see [UserAgent].
	UserAgent string `json:"userAgent"`
	// Lists that were forwarded and succeeded. It may be too high by Excess, since only so many
	// programs are remembered.
	Lists  int64 `json:"lists"`
	Excess int64 `json:"excess,omitempty"`
	// Reason is the most frequent one.
	Reason string `json:"reason"`
}

// FlagStatus is a flag of the command line.
type FlagStatus struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Set is true if it was given.
	Set bool `json:"set"`
}

// Sort puts lists of s into the order in which they are shown.
func (s *Status) Sort() {
	slices.SortFunc(s.Collections, func(a, b CollectionStatus) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Representation, b.Representation))
	})
	slices.SortFunc(s.Lists.Reasons, func(a, b ReasonStatus) int {
		return cmp.Or(cmp.Compare(b.Lists, a.Lists), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(s.Callers, func(a, b CallerStatus) int {
		return cmp.Or(cmp.Compare(b.Lists, a.Lists), cmp.Compare(a.UserAgent, b.UserAgent))
	})
}
