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
	// Collections has all collections, by resource.
	Collections []Collection `json:"collections"`
	// Mismatches has the collections in which self-checks found differences, the latest first.
	Mismatches []Mismatch `json:"mismatches"`
	Memory     Memory     `json:"memory"`
}

// Upstream is the state of the API server, as seen by requests of listproxy's own account.
type Upstream struct {
	// Address is the scheme, host and port.
	Address string `json:"address"`
	// State is the state label of listproxy_upstream_ok, and StateAge the time since State changed.
	State    string  `json:"state"`
	StateAge float64 `json:"stateSeconds"`
	// AnswerAge is the time since the last answer; absent before the first answer.
	AnswerAge *float64 `json:"answeredSeconds,omitempty"`
	// Error is the cause of a State other than ok, and Advice what to do. Both are absent if State is ok.
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// Answers counts requests that were answered from memory (Answered), and by the API server (Forwarded).
type Answers struct {
	Answered  int64 `json:"answered"`
	Forwarded int64 `json:"forwarded"`
	// Share is the share of requests that were answered from memory, from 0 to 1; absent if there were no requests.
	Share *float64 `json:"share,omitempty"`
}

// setShare sets Share from the counts.
func (a *Answers) setShare() {
	total := a.Answered + a.Forwarded
	if total > 0 {
		a.Share = new(float64(a.Answered) / float64(total))
	}
}

// Reason is a reason to forward, its meaning, and the number of lists and watches that were forwarded for this reason.
type Reason struct {
	Reason  string `json:"reason"`
	Lists   int64  `json:"lists"`
	Watches int64  `json:"watches"`
	Meaning string `json:"meaning"`
}

// CollectionName names a collection: one resource in one representation.
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

// StateLive is the State of a collection that answers lists of the newest revision.
const StateLive = "live"

// Collection is the state of a collection.
type Collection struct {
	CollectionName
	// State is [StateLive], or the reason for which lists of the newest revision are forwarded.
	State   string `json:"state"`
	Objects int    `json:"objects"`
	// From and To are the first and the last revision that can be asked for; 0 if none is in memory.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// History is the age of revision From.
	History float64 `json:"historySeconds"`
	// Window is the age up to which revisions are kept.
	Window float64 `json:"windowSeconds"`
	// Age bounds how far, in time, revision To is behind the API server; absent before the first load.
	Age *float64 `json:"ageSeconds,omitempty"`
	// Idle is the time since the last request for the collection.
	Idle    float64 `json:"idleSeconds"`
	Watches int64   `json:"watches"` // open watches that are answered from memory
	Bytes   int64   `json:"bytes"`
}

// Mismatch counts the self-checks that found a difference in a collection. The collection was dropped each time.
type Mismatch struct {
	CollectionName
	Times int     `json:"times"`
	Age   float64 `json:"ageSeconds"` // the time since the last difference was found
}

// Memory has the memory in use and its limits. A limit of 0 means no limit. A size of 0 may be unknown.
type Memory struct {
	Stored       int64 `json:"storedBytes"` // taken by all collections
	StoredLimit  int64 `json:"storedLimitBytes"`
	Compressed   int64 `json:"compressedBytes"` // taken by compressed lists
	Process      int64 `json:"processBytes"`    // resident memory of the process
	ProcessLimit int64 `json:"processLimitBytes"`
}

// sort sorts the lists that were collected in any order.
func (s *Status) sort() {
	slices.SortFunc(s.Collections, func(a, b Collection) int { return a.compare(b.CollectionName) })
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int {
		return cmp.Or(cmp.Compare(a.Age, b.Age), a.compare(b.CollectionName))
	})
	slices.SortFunc(s.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.Reason, b.Reason))
	})
}
