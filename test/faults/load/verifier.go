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

// verifiers is how many answers are held against the API server at a time.
const verifiers = 3

// Witness is an answer from memory, to be held against the API server once it can be asked.
type Witness struct {
	Question        Question
	Answer          ask.Answer
	List            ask.List
	Asked, Answered time.Time
}

// Verifier knows what is right. Safe for concurrent use.
type Verifier struct {
	oracle.Queue[Witness] // of answers from memory
	tally                 *Tally

	mu     sync.Mutex
	direct []*ask.Client
	known  map[string]map[[sha256.Size]byte]bool // what kube-apiserver said, by question
	era    int                                   // how often that was forgotten
	lost   []*Past
	// Since etcd was replaced, and there again at renewed: when each collection first was seen in the
	// present, and last in the past.
	renewed time.Time
	present map[Collection]time.Time
	absent  map[Collection]time.Time
}

func newVerifier(t *Tally, direct ...*ask.Client) *Verifier {
	return &Verifier{
		tally: t, direct: direct, known: map[string]map[[sha256.Size]byte]bool{},
		present: map[Collection]time.Time{}, absent: map[Collection]time.Time{},
	}
}

// Work holds answers against the API server, and those that come, until ctx ends.
func (v *Verifier) Work(ctx context.Context) { v.Queue.Work(ctx, verifiers, v.verify) }

// Only makes these API servers the ones that say what is right from now on. They may be of several
// versions: an answer must be all of what one of them says.
func (v *Verifier) Only(direct ...*ask.Client) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.direct = direct
	clear(v.known)
}

// verify holds one answer against what the API servers say, or against the record of a past.
func (v *Verifier) verify(ctx context.Context, w Witness) {
	same := w.Question.At(w.List.Revision)
	sum := sha256.Sum256(w.Answer.Body)
	recorded := false
	err := poll.Retry(ctx, "asking kube-apiserver", func() (err error) {
		direct, era, known := v.what(same, sum)
		if known {
			return nil
		}
		recorded, err = v.compare(ctx, w, same, direct)
		if err == nil && !recorded {
			v.seenPresent(w, same, sum, era)
		}
		return err
	})
	switch {
	case err == nil:
		v.tally.right(w.Asked, recorded)
	case ctx.Err() == nil:
		v.tally.Wrong("%s asked at %s: revision %d, %s: %v", w.Question, w.Asked.Format(time.StampMilli), w.List.Revision, w.Answer.Source(), err)
	}
}

// what is who says what is right, in which era, and whether an answer is known to be right.
func (v *Verifier) what(same Question, sum [sha256.Size]byte) (direct []*ask.Client, era int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.direct, v.era, v.known[same.String()][sum]
}

// compare asks the API servers, of which one must say the same; or the answer is of a recorded
// past.
func (v *Verifier) compare(ctx context.Context, w Witness, same Question, undisturbed []*ask.Client) (recorded bool, err error) {
	var differences strings.Builder
	for _, client := range undisturbed {
		direct, err := client.GetAs(ctx, same.Form.Accept, same.Target())
		switch {
		case err != nil:
			return false, err
		case direct.Code == http.StatusOK && (bytes.Equal(direct.Body, w.Answer.Body) || body.SameButToken(direct.Body, w.Answer.Body)):
			if got, want := w.Answer.Header.Get("Content-Type"), direct.Header.Get("Content-Type"); got != want {
				return false, poll.Wrong(fmt.Sprintf("Content-Type %q, directly %q", got, want))
			}
			return false, nil
		// A list of that revision tells what was so, unless revisions were given a second time.
		case v.seenPast(w, direct.Code != http.StatusOK):
			return true, nil
		case direct.Code != http.StatusOK:
			return false, errors.New(direct.String())
		}
		differences.WriteString("\n  " + oracle.Difference(w.Answer.Body, direct.Body))
	}
	return false, poll.Wrong("not what kube-apiserver says:" + differences.String())
}

// seenPresent notes an answer that is what kube-apiserver said in an era.
func (v *Verifier) seenPresent(w Witness, same Question, sum [sha256.Size]byte, era int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if era != v.era {
		return // that was before etcd was replaced
	}
	if v.known[same.String()] == nil {
		v.known[same.String()] = map[[sha256.Size]byte]bool{}
	}
	v.known[same.String()][sum] = true
	if v.isPast(w, true) {
		return // true in both
	}
	c := w.Question.Collection
	if first := v.present[c]; first.IsZero() || w.Answered.Before(first) {
		v.present[c] = w.Answered
	}
}

// seenPast says whether an answer was true in a past that the API server has lost, and notes that. A past
// whose revisions still mean the same counts only if the API server no longer has the revision: gone. After
// etcd was replaced, a state of the lost past is wrong as the newest one once the bound is over, and wrong
// at once where all that was written before had to be in it.
func (v *Verifier) seenPast(w Witness, gone bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.isPast(w, gone) {
		return false
	}
	if v.renewed.IsZero() {
		return true
	}
	if c := w.Question.Collection; w.Asked.After(v.absent[c]) {
		v.absent[c] = w.Asked
	}
	since := w.Asked.Sub(v.renewed)
	if w.Question.Recent() && since > 0 || w.Question.Newest() && since > Bound+oracle.Tolerance {
		v.tally.Wrong("%s: a state of the lost past, asked for %v after etcd was replaced", w.Question, since)
	}
	return true
}

func (v *Verifier) isPast(w Witness, gone bool) bool {
	return slices.ContainsFunc(v.lost, func(p *Past) bool { return (gone || p.replaced) && p.has(w) })
}

// Lose tells of a past that is about to be taken away.
func (v *Verifier) Lose(p *Past) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = append(v.lost, p)
}

// Forget is called when a replaced etcd is there again: what kube-apiserver said before no longer counts,
// and is asked for again.
func (v *Verifier) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.era++
	v.renewed = time.Now()
	clear(v.known)
	clear(v.present)
}

// Relapses returns the collections that were seen in the past after they had been seen in the
// present.
func (v *Verifier) Relapses() (found []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c, last := range v.absent {
		if first := v.present[c]; !first.IsZero() && last.After(first) {
			found = append(found, fmt.Sprintf("%s, %s: of a lost past %v after it had been of the present", c.Kind.Plural, c.Form.Name, last.Sub(first)))
		}
	}
	return found
}
