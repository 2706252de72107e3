package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// verifiers is how many answers are held against the API server at a time.
const verifiers = 3

// witness is an answer from memory, to be held against the API server once it can be asked.
type witness struct {
	question question
	answer   ask.Answer
	list     ask.List
	asked    time.Time
	answered time.Time
}

// verifier knows what is right. Safe for concurrent use.
type verifier struct {
	oracle.Queue[witness] // of answers from memory
	direct                *ask.Client
	tally                 *tally

	mu    sync.Mutex
	known map[string][sha256.Size]byte // what kube-apiserver said, by question
	era   int                          // how often that was forgotten
	lost  []*past
	// Since etcd was replaced: when each collection first was seen in the present, and last in the past.
	present map[collection]time.Time
	absent  map[collection]time.Time
	// absentNewest is when such a state was last asked for that was given as the newest.
	absentNewest time.Time
	// absentRecent is when such a state was last asked for that was to hold all that was written before.
	absentRecent time.Time
}

func newVerifier(direct *ask.Client, t *tally) *verifier {
	return &verifier{
		direct: direct, tally: t, known: map[string][sha256.Size]byte{},
		present: map[collection]time.Time{}, absent: map[collection]time.Time{},
	}
}

// verify holds one answer against the API server, or against the record of a past.
func (o *verifier) verify(ctx context.Context, w witness) {
	same := w.question.at(w.list.Revision)
	sum := sha256.Sum256(oracle.Plain(w.answer.Body))
	o.mu.Lock()
	want, ok := o.known[same.String()]
	o.mu.Unlock()
	if ok && want == sum {
		o.tally.right(w.asked, false)
		return
	}
	err := poll.Retry(ctx, "asking kube-apiserver", func() error {
		era := o.currentEra()
		direct, err := o.direct.GetAs(ctx, same.form.accept, same.target())
		switch {
		case err != nil:
			return err
		case direct.Code == http.StatusOK && bytes.Equal(oracle.Plain(direct.Body), oracle.Plain(w.answer.Body)):
			if got, want := w.answer.Header.Get("Content-Type"), direct.Header.Get("Content-Type"); got != want {
				return poll.Wrong(fmt.Sprintf("Content-Type %q, directly %q", got, want))
			}
			o.seenPresent(w, same, sum, era)
			o.tally.right(w.asked, false)
			return nil
		// A list of that revision tells what was so, unless revisions were given a second time.
		case o.seenPast(w, direct.Code != http.StatusOK):
			o.tally.right(w.asked, true)
			return nil
		case direct.Code == http.StatusOK:
			return poll.Wrong("not what kube-apiserver says:\n  " + oracle.Difference(w.answer.Body, direct.Body))
		}
		return errors.New(direct.String())
	})
	if err != nil {
		o.tally.wrong("%s asked at %s: revision %d, %s: %v", w.question, w.asked.Format(time.StampMilli), w.list.Revision, w.answer.Source(), err)
	}
}

func (o *verifier) currentEra() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.era
}

// seenPresent notes an answer that is what kube-apiserver said in an era.
func (o *verifier) seenPresent(w witness, same question, sum [sha256.Size]byte, era int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if era != o.era {
		return // that was before etcd was replaced
	}
	o.known[same.String()] = sum
	if o.isPast(w, true) {
		return // true in both
	}
	c := w.question.collection
	if first := o.present[c]; first.IsZero() || w.answered.Before(first) {
		o.present[c] = w.answered
	}
}

// seenPast says whether an answer was true in a past that the API server has lost, and notes that. Of pasts whose
// revisions still mean the same only if the API server does not know them any more: gone.
func (o *verifier) seenPast(w witness, gone bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isPast(w, gone) {
		return false
	}
	if o.replaced() {
		if c := w.question.collection; w.asked.After(o.absent[c]) {
			o.absent[c] = w.asked
		}
		if w.question.newest() && w.asked.After(o.absentNewest) {
			o.absentNewest = w.asked
		}
		if w.question.recent() && w.asked.After(o.absentRecent) {
			o.absentRecent = w.asked
		}
	}
	return true
}

func (o *verifier) isPast(w witness, gone bool) bool {
	return slices.ContainsFunc(o.lost, func(p *past) bool { return (gone || p.replaced) && p.has(w) })
}

func (o *verifier) replaced() bool {
	return slices.ContainsFunc(o.lost, func(p *past) bool { return p.replaced })
}

// lose tells the oracle of a past that is about to be taken away.
func (o *verifier) lose(p *past) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost = append(o.lost, p)
}

// forget makes the oracle ask again for what kube-apiserver said before.
func (o *verifier) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.era++
	clear(o.known)
	clear(o.present)
}

// relapses returns the collections that were seen in the past after they had been seen in the present.
func (o *verifier) relapses() (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c, last := range o.absent {
		if first := o.present[c]; !first.IsZero() && last.After(first) {
			found = append(found, fmt.Sprintf("%s, %s: of a lost past %v after it had been of the present", c.kind.plural, c.form.name, last.Sub(first)))
		}
	}
	return found
}

// lastNewestPast returns when a state of a replaced past only was last asked for that was given as the newest.
func (o *verifier) lastNewestPast() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.absentNewest
}

// lastRecentPast returns when such a state was last asked for that was to hold all that was written before.
func (o *verifier) lastRecentPast() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.absentRecent
}

// lastPast returns when the last answer was asked for that was of a replaced past only, or nil.
func (o *verifier) lastPast() (last *time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.absent {
		if last == nil || at.After(*last) {
			last = &at
		}
	}
	return last
}
