package admin

import (
	"cmp"
	"slices"
	"time"
)

// Status is the content of the status page, and of its JSON. Later versions keep the names and meanings of the JSON's
// members, and may add members. Counts are of requests that have ended since the process began. Durations are in
// seconds, sizes in bytes.
type Status struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Uptime  float64   `json:"uptimeSeconds"`
	// Healthy reports whether all Checks are OK. A replica that is not healthy may still be ready, see [Source.Checks].
	Healthy  bool     `json:"healthy"`
	Checks   []Check  `json:"checks"`
	Upstream Upstream `json:"upstream"`
	// Lists and Watches count requests. A streaming list counts as a watch.
	Lists   Answers `json:"lists"`
	Watches Answers `json:"watches"`
	// Reasons counts the forwarded requests by reason, the most frequent reason first.
	Reasons []Reason `json:"reasons"`
	// Collections has all collections, in the order of their names.
	Collections []Collection `json:"collections"`
	// Mismatches has the collections that differed from the API server in a self-check, the latest mismatch first.
	Mismatches []Mismatch `json:"mismatches"`
	Memory     Memory     `json:"memory"`
}

// Upstream is the state of the API server, as seen by requests of listproxy's own account.
type Upstream struct {
	// Address is the scheme, host and port.
	Address string `json:"address"`
	// State is an [upstream.Condition], such as "ok" or "unreachable".
	State string `json:"state"`
	// StateAge is the time since State changed.
	StateAge float64 `json:"stateSeconds"`
	// AnswerAge is the time since the last answer; absent before the first answer.
	AnswerAge *float64 `json:"answeredSeconds,omitempty"`
	// Error is the cause of the State; absent if State is ok.
	Error string `json:"error,omitempty"`
	// Advice says what to do about the Error; absent if State is ok.
	Advice string `json:"advice,omitempty"`
}

// Answers counts requests by where their answers came from.
type Answers struct {
	FromMemory int64 `json:"answered"`
	Forwarded  int64 `json:"forwarded"` // answered by the API server
	// Share is the share of requests that were answered from memory, from 0 to 1; absent if there were no requests.
	Share *float64 `json:"share,omitempty"`
}

// setShare computes Share from the two counts.
func (a *Answers) setShare() {
	total := a.FromMemory + a.Forwarded
	if total > 0 {
		a.Share = new(float64(a.FromMemory) / float64(total))
	}
}

// Reason is a reason to forward, its meaning, and the number of lists and watches that were forwarded for this reason.
type Reason struct {
	Reason  string `json:"reason"`
	Lists   int64  `json:"lists"`
	Watches int64  `json:"watches"`
	Meaning string `json:"meaning"`
}

// CollectionName names a collection: the objects of one resource that listproxy keeps in memory, in one representation.
type CollectionName struct {
	Resource       string `json:"resource"` // for example "deployments.apps"
	Version        string `json:"version"`
	Representation string `json:"representation"`
}

// compare compares two names, as [cmp.Compare] does.
func (n CollectionName) compare(other CollectionName) int {
	return cmp.Or(
		cmp.Compare(n.Resource, other.Resource),
		cmp.Compare(n.Version, other.Version),
		cmp.Compare(n.Representation, other.Representation),
	)
}

// StateLive is the State of a collection that answers consistent lists.
const StateLive = "live"

// Collection describes a collection.
type Collection struct {
	CollectionName
	// State is [StateLive], or the reason why consistent lists are forwarded.
	State   string `json:"state"`
	Objects int    `json:"objects"`
	// OldestRevision is the oldest revision that clients can list; 0 if there is none.
	OldestRevision uint64 `json:"from"`
	// NewestRevision is the newest revision that clients can list; 0 if there is none.
	NewestRevision uint64 `json:"to"`
	// HistoryLength is the age of OldestRevision. It grows to about HistoryWindow.
	HistoryLength float64 `json:"historySeconds"`
	// HistoryWindow is the setting: older revisions are dropped.
	HistoryWindow float64 `json:"windowSeconds"`
	// Staleness is the time since NewestRevision was last known to be the API server's newest; absent before the first load.
	// The collection is behind the API server by at most this time.
	Staleness *float64 `json:"ageSeconds,omitempty"`
	// IdleTime is the time since the last request for the collection.
	IdleTime float64 `json:"idleSeconds"`
	Watches  int64   `json:"watches"` // open watches that are answered from memory
	Bytes    int64   `json:"bytes"`
}

// Mismatch counts the self-checks in which a collection differed from the API server. The collection was dropped each time.
type Mismatch struct {
	CollectionName
	Times   int     `json:"times"`
	LastAge float64 `json:"ageSeconds"` // the time since the last mismatch
}

// Memory has the memory in use and its limits.
type Memory struct {
	Stored       int64 `json:"storedBytes"`       // taken by all collections
	StoredLimit  int64 `json:"storedLimitBytes"`  // 0: no limit
	Compressed   int64 `json:"compressedBytes"`   // taken by compressed lists
	Process      int64 `json:"processBytes"`      // resident memory of the process; 0: not known
	ProcessLimit int64 `json:"processLimitBytes"` // 0: no limit
}

// sort sorts Collections by name, Mismatches by age, and Reasons by the number of requests, the most frequent first.
func (s *Status) sort() {
	slices.SortFunc(s.Collections, func(a, b Collection) int { return a.compare(b.CollectionName) })
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int {
		return cmp.Or(cmp.Compare(a.LastAge, b.LastAge), a.compare(b.CollectionName))
	})
	slices.SortFunc(s.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.Reason, b.Reason))
	})
}
