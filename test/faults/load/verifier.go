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

// Verifier compares answers from memory with kube-apiserver's, once that can be asked. Safe for concurrent use.
//
//   - reference: an API server whose answers are right
//   - body: the bytes of an answer. Once a reference has sent a body, that body is confirmed, and need not be asked for again
//   - timeline: the history of one etcd. A replaced etcd begins a new timeline, and gives the same revisions to other states
//   - lost history: what kube-apiserver no longer knows, after a compaction or on an old timeline ([LostHistory])
type Verifier struct {
	oracle.Queue[Hit] // not yet compared
	tally             *Tally

	mu         sync.Mutex
	references []*ask.Client
	confirmed  map[string]map[[sha256.Size]byte]bool // the sums of confirmed bodies, by question
	timeline   int                                   // the number of replacements of etcd so far
	lost       []*LostHistory

	replacedAt time.Time                // when a replaced etcd was back
	firstNew   map[Collection]time.Time // since replacedAt, when a collection was first seen on the new timeline
	lastOld    map[Collection]time.Time // since replacedAt, when a collection was last seen on an old timeline
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

// compare asks the references, and returns no error if the hit is right:
//
//   - one reference sends the same body
//   - the hit was true in a lost history, by its record. Then fromRecord is true
//   - each object of the hit is as one of several references writes it
func (v *Verifier) compare(ctx context.Context, hit Hit, exact Question, references []*ask.Client) (fromRecord bool, err error) {
	var differences strings.Builder
	var bodies [][]byte
	for _, client := range references {
		direct, err := client.GetAs(ctx, exact.Representation.Accept, exact.Target())
		if err != nil {
			return false, err
		}
		hasRevision := direct.Code == http.StatusOK
		switch {
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

// confirm notes that a reference sent the same body as a hit, on a timeline.
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
	const hasRevision = false // any history may have the hit
	if v.matchesLostLocked(hit, hasRevision) {
		return // true on both timelines
	}
	c := hit.Question.Collection
	if first := v.firstNew[c]; first.IsZero() || hit.Answered.Before(first) {
		v.firstNew[c] = hit.Answered
	}
}

// matchesLost reports whether a hit was true in a history that kube-apiserver has lost. If kube-apiserver hasRevision, its state
// is the only right one, unless etcd was replaced and revisions were given a second time.
func (v *Verifier) matchesLost(hit Hit, hasRevision bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.matchesLostLocked(hit, hasRevision)
}

func (v *Verifier) matchesLostLocked(hit Hit, hasRevision bool) bool {
	return slices.ContainsFunc(v.lost, func(h *LostHistory) bool {
		isPossible := h.etcdReplaced || !hasRevision
		return isPossible && h.contains(hit)
	})
}

// judgeOldTimeline notes when a hit of a lost history was asked for. The hit is a mistake if listproxy must have learned of the
// new timeline by then: at once for a consistent list, and after the bound for each list with a bounded age.
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
	isTooOld := hit.Question.BoundsAge() && delay > Bound+oracle.Tolerance
	isInconsistent := hit.Question.Consistent() && delay > 0
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

// RecordReplacement says that a replaced etcd is back. Bodies that were confirmed before are asked for again.
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
