package load

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// parallelComparisons is the number of answers that are compared at a time.
const parallelComparisons = 3

// Hit is an answer from memory.
type Hit struct {
	Question        Question
	Answer          ask.Answer
	List            ask.List // as decoded from Answer
	Asked, Answered time.Time
}

// Verifier compares answers from memory with kube-apiserver's. While kube-apiserver is down, answers wait. Safe for concurrent
// use.
//
// A list from memory at revision 1200 is right if kube-apiserver sends the same bytes for this list at exactly revision 1200.
// If kube-apiserver has lost that revision, or gives it to another state since etcd was replaced, a record of the lost history
// decides.
//
//   - reference: an API server whose answers are right
//   - confirmed body: the bytes of an answer that a reference has sent, too. They need not be asked for again
//   - timeline: the history of one etcd. A replaced etcd begins a new timeline, and may give the same revisions to other states
//   - lost history: states that kube-apiserver no longer has after a compaction, or after etcd was replaced ([LostHistory])
type Verifier struct {
	oracle.Queue[Hit] // not yet compared
	tally             *Tally

	mu         sync.Mutex
	references []*ask.Client
	confirmed  map[string]map[[sha256.Size]byte]bool // the sums of confirmed bodies, by question
	timeline   int                                   // the number of replacements of etcd so far
	lost       []*LostHistory

	replacedAt time.Time                // the last time at which a replaced etcd was back; zero: etcd was not replaced
	firstNew   map[Collection]time.Time // the time of the first answer with a state of the newest timeline, by collection
	lastOld    map[Collection]time.Time // the time of the last request that got a state of an old timeline, by collection
}

func newVerifier(t *Tally, references ...*ask.Client) *Verifier {
	return &Verifier{
		tally: t, references: references, confirmed: map[string]map[[sha256.Size]byte]bool{},
		firstNew: map[Collection]time.Time{}, lastOld: map[Collection]time.Time{},
	}
}

// Work compares answers until ctx ends.
func (v *Verifier) Work(ctx context.Context) { v.Queue.Work(ctx, parallelComparisons, v.verify) }

// SetReferences says which API servers answers are compared with from now on. They may be of several versions: each object of
// an answer must be as one of them writes it.
func (v *Verifier) SetReferences(references ...*ask.Client) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.references = references
	clear(v.confirmed)
}

// verify compares one answer with what the API servers say, or with the record of a lost history.
func (v *Verifier) verify(ctx context.Context, hit Hit) {
	exact := hit.Question.AtRevision(hit.List.Revision)
	sum := sha256.Sum256(hit.Answer.Body)
	fromRecord := false
	err := poll.Retry(ctx, "asking kube-apiserver", func() (err error) {
		references, timeline, isConfirmed := v.lookup(exact, sum)
		if isConfirmed {
			return nil
		}
		fromRecord, err = v.compare(ctx, hit, exact, references)
		if err == nil && !fromRecord {
			v.confirm(hit, exact, sum, timeline)
		}
		return err
	})
	switch {
	case err == nil:
		v.tally.addCompared(hit.Asked, fromRecord)
	case ctx.Err() == nil:
		v.tally.AddMistake("%s asked at %s: revision %d, %s: %v",
			hit.Question, hit.Asked.Format(time.StampMilli), hit.List.Revision, hit.Answer.Source(), err)
	}
}

// lookup returns the API servers to ask, the timeline to which their answers belong, and whether a body is confirmed.
func (v *Verifier) lookup(exact Question, sum [sha256.Size]byte) (references []*ask.Client, timeline int, isConfirmed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.references, v.timeline, v.confirmed[exact.String()][sum]
}

// compare asks the references one after the other, and returns nil if the hit is right. It is right in each of these cases:
//
//   - A reference sends the same body.
//   - The hit was true in a lost history. Then fromRecord is true.
//   - There are several references, and each object of the hit has the bytes that one of them sends.
func (v *Verifier) compare(ctx context.Context, hit Hit, exact Question, references []*ask.Client) (fromRecord bool, err error) {
	var differences strings.Builder
	var bodies [][]byte
	for _, client := range references {
		direct, err := client.GetAs(ctx, exact.Representation.Accept, exact.Target())
		if err != nil {
			return false, err
		}
		hasRevision := direct.Code == http.StatusOK
		switch { // the first case that applies
		case hasRevision && (bytes.Equal(direct.Body, hit.Answer.Body) || body.SameButToken(direct.Body, hit.Answer.Body)):
			if got, want := hit.Answer.Header.Get("Content-Type"), direct.Header.Get("Content-Type"); got != want {
				return false, poll.Wrong(fmt.Sprintf("Content-Type %q, directly %q", got, want))
			}
			return false, nil
		case v.matchesLost(hit, hasRevision):
			v.judgeOldTimeline(hit)
			return true, nil
		case !hasRevision:
			return false, errors.New(direct.String())
		}
		differences.WriteString("\n  " + oracle.Difference(hit.Answer.Body, direct.Body))
		bodies = append(bodies, direct.Body)
	}
	if len(references) > 1 && body.Mixes(hit.Answer.Body, bodies...) {
		return false, nil
	}
	return false, poll.Wrong("not what kube-apiserver says:" + differences.String())
}

// confirm notes that a reference has sent the same body as a hit. timeline is the timeline of that reference's answer.
func (v *Verifier) confirm(hit Hit, exact Question, sum [sha256.Size]byte, timeline int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if timeline != v.timeline {
		return // etcd was replaced meanwhile
	}
	if v.confirmed[exact.String()] == nil {
		v.confirmed[exact.String()] = map[[sha256.Size]byte]bool{}
	}
	v.confirmed[exact.String()][sum] = true
	// Every lost history counts here, also one that was only compacted.
	const hasRevision = false
	if v.matchesLostLocked(hit, hasRevision) {
		return // true on both timelines, so it does not show that listproxy knows the new one
	}
	c := hit.Question.Collection
	if first := v.firstNew[c]; first.IsZero() || hit.Answered.Before(first) {
		v.firstNew[c] = hit.Answered
	}
}

// matchesLost reports whether a hit was true in a lost history. hasRevision means that kube-apiserver still has the hit's
// revision. Then a history that was only compacted does not count: kube-apiserver's state is right. A history of a replaced
// etcd counts, since the new etcd gives the same revision to another state.
func (v *Verifier) matchesLost(hit Hit, hasRevision bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.matchesLostLocked(hit, hasRevision)
}

// matchesLostLocked is matchesLost. The caller holds mu.
func (v *Verifier) matchesLostLocked(hit Hit, hasRevision bool) bool {
	return slices.ContainsFunc(v.lost, func(h *LostHistory) bool {
		counts := h.etcdReplaced || !hasRevision
		return counts && h.contains(hit)
	})
}

// judgeOldTimeline judges a hit of a lost history by the time at which it was asked for. With a bound of 6 s (and a tolerance),
// a list of any version may show the old timeline if it was asked for 5 s after etcd was replaced, but not 10 s after. A
// consistent list may show it only if it was asked for before. For lists at an exact revision there is no limit.
func (v *Verifier) judgeOldTimeline(hit Hit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.replacedAt.IsZero() {
		return // lost to a compaction
	}
	if c := hit.Question.Collection; hit.Asked.After(v.lastOld[c]) {
		v.lastOld[c] = hit.Asked
	}
	delay := hit.Asked.Sub(v.replacedAt)
	isTooOld := hit.Question.HasMaxAge() && delay > Bound+oracle.Tolerance
	isInconsistent := hit.Question.IsConsistent() && delay > 0
	if isTooOld || isInconsistent {
		v.tally.AddMistake("%s: a state of a lost history, asked for %v after etcd was replaced", hit.Question, delay)
	}
}

// RecordLoss adds a history that kube-apiserver is about to lose.
func (v *Verifier) RecordLoss(h *LostHistory) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = append(v.lost, h)
}

// RecordReplacement begins a new timeline: a replaced etcd is back. Bodies that were confirmed before are asked for again.
func (v *Verifier) RecordReplacement() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timeline++
	v.replacedAt = time.Now()
	clear(v.confirmed)
	clear(v.firstNew)
}

// Relapses returns descriptions of the collections that were seen on an old timeline after they had been seen on the new one.
func (v *Verifier) Relapses() (descriptions []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c, last := range v.lastOld {
		if first := v.firstNew[c]; !first.IsZero() && last.After(first) {
			descriptions = append(descriptions, fmt.Sprintf("%s, %s: on an old timeline %v after it was on the new one",
				c.Kind.Plural, c.Representation.Name, last.Sub(first)))
		}
	}
	return descriptions
}
