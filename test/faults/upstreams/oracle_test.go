package upstreams

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// verifiers is how many answers are compared at a time.
const verifiers = 2

// witness is an answer from memory, to be compared.
type witness struct {
	question question // of one state
	body     []byte
	asked    time.Time
	sort     string // of request; of lists of any state there are so many that they do not count
}

// verifier compares answers with those of undisturbed API servers, and counts. Safe for concurrent use.
type verifier struct {
	oracle.Queue[witness] // of answers from memory

	mu     sync.Mutex
	direct []*ask.Client
	known  map[string]map[[sha256.Size]byte]bool

	counts
	mistakes []string
	reasons  map[string]int // what was not answered, and why not
	// lastOf is since when there was no answer, of each sort of request that is asked all the time.
	lastOf map[string]time.Time
}

// counts is what was seen in one part of a test.
type counts struct {
	compared, answers, hits, lost int
	// longest is for how long there was no answer, of lists and of what is forwarded. A part's first and
	// last moment count as answers.
	longest map[string]time.Duration
	// behind is for how long the API servers had left the oldest state that was given as the newest one.
	behind time.Duration
}

// outages are the sorts of requests to listproxy that went without an answer for longer than limit, and than an undisturbed API
// server did beyond that.
func (c counts) outages(limit time.Duration) (sorts []string) {
	for sort, gap := range c.longest {
		if sort != sortDirect && gap > limit+c.longest[sortDirect] {
			sorts = append(sorts, sort)
		}
	}
	slices.Sort(sorts)
	return sorts
}

func newVerifier(direct ...*ask.Client) *verifier {
	o := &verifier{lastOf: map[string]time.Time{}}
	o.only(direct...)
	o.begin()
	return o
}

// only makes these API servers the ones that say what is right from now on.
func (o *verifier) only(direct ...*ask.Client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.direct, o.known = direct, map[string]map[[sha256.Size]byte]bool{}
}

// expect notes that these sorts of requests are asked all the time from now on.
func (o *verifier) expect(sorts ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sort := range sorts {
		o.lastOf[sort] = time.Now()
	}
}

// begin begins another part of a test, and returns what was seen in the one before.
func (o *verifier) begin() counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for sort := range o.lastOf {
		o.answered(sort, now)
	}
	was := o.counts
	o.counts = counts{longest: map[string]time.Duration{}}
	o.reasons = map[string]int{}
	return was
}

// answered closes the gap of a sort of requests. The caller holds o.mu.
func (o *verifier) answered(sort string, now time.Time) {
	if last, ok := o.lastOf[sort]; ok {
		o.longest[sort] = max(o.longest[sort], now.Sub(last))
	}
	o.lastOf[sort] = now
}

// compare holds one answer against what the API servers say: it must be that of one of them.
func (o *verifier) compare(ctx context.Context, w witness) {
	name, sum := w.question.String(), sha256.Sum256(oracle.Plain(w.body))
	o.mu.Lock()
	known, undisturbed := o.known[name][sum], o.direct
	o.mu.Unlock()
	var err error
	if !known {
		err = poll.Retry(ctx, "asking kube-apiserver", func() error {
			var differences string
			for _, direct := range undisturbed {
				a, err := direct.GetAs(ctx, w.question.accept, w.question.target())
				switch {
				case err != nil:
					return err
				case a.Code != http.StatusOK:
					return fmt.Errorf("%s", a)
				case bytes.Equal(oracle.Plain(a.Body), oracle.Plain(w.body)):
					return nil
				}
				differences += "\n  " + oracle.Difference(w.body, a.Body)
			}
			return poll.Wrong("not what kube-apiserver says:" + differences)
		})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		if o.known[name] == nil {
			o.known[name] = map[[sha256.Size]byte]bool{}
		}
		o.known[name][sum] = true
		if w.sort == sortList {
			o.compared++
		}
	case ctx.Err() == nil:
		o.mistakes = append(o.mistakes, fmt.Sprintf("%s asked at %s: %v", name, w.asked.Format(time.StampMilli), err))
	}
}

// wrong notes what must not be.
func (o *verifier) wrong(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mistakes = append(o.mistakes, fmt.Sprintf(format, args...))
}

// lag notes how far behind a state was that was given as the newest one.
func (o *verifier) lag(behind time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.behind = max(o.behind, behind)
}

// heard notes an answer, or that there was none, of a sort of request.
func (o *verifier) heard(sort string, a ask.Answer, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || a.Code/100 != 2 {
		if err != nil || !a.NotThereYet() {
			o.lost++
		}
		if err == nil {
			err = fmt.Errorf("%s", a)
		}
		o.reasons[sort+": "+err.Error()]++
		return
	}
	o.answered(sort, time.Now())
	if sort == sortList {
		o.answers++
		if a.FromMemory() {
			o.hits++
		}
	}
}

// heardDirect notes an answer of an undisturbed API server, or that there was none.
func (o *verifier) heardDirect(a ask.Answer, err error) {
	if err != nil || a.Code != http.StatusOK {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered(sortDirect, time.Now())
}

func (o *verifier) comparisons() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.compared
}

func (o *verifier) found() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.mistakes)
}

func (o *verifier) why() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.reasons)
}
