package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/oracle"
)

// Bound is the shortest --staleness-bound there is.
const Bound = 6 * time.Second

// resumeWithin is for how long after an outage what is known counts as in it.
const resumeWithin = 5 * time.Second

// Load writes and asks, and judges the answers. Safe for concurrent use.
type Load struct {
	Ledger oracle.Ledger[kinds.Kind]
	Tally  *Tally
	Oracle *Verifier
	// Bound is the --staleness-bound of listproxy under load.
	Bound time.Duration
	// BreaksOften: connections break so often that an outage may have come and gone without an answer that says so.
	BreaksOften bool

	// given is when a list was last given to somebody with this right, a time.Time.
	given sync.Map

	// outage is when an answer last said that nobody answers upstream, in nanoseconds since 1970.
	outage atomic.Int64
}

// New returns a load whose answers are held against what one of these API servers says.
func New(direct ...*ask.Client) *Load {
	t := &Tally{}
	return &Load{Tally: t, Oracle: newVerifier(t, direct...), Bound: Bound}
}

// boundAt is how old a newest state may be that is given at a time: in an outage, for the bound, as old as it was when
// somebody last answered.
func (l *Load) boundAt(at time.Time) time.Duration {
	if l.BreaksOften || l.isOut(at) {
		return 2*l.Bound + resumeWithin
	}
	return l.Bound
}

// isOut reports whether an answer has said shortly before that nobody answers upstream.
func (l *Load) isOut(at time.Time) bool { return at.Sub(time.Unix(0, l.outage.Load())) < resumeWithin }

// Write writes, and notes the revision unless the object is gone with it.
func (l *Load) Write(ctx context.Context, c *ask.Client, k kinds.Kind, method, path string, object any) (ask.Answer, error) {
	a, err := c.Do(ctx, method, path, object)
	if err != nil || method == http.MethodDelete {
		return a, err
	}
	revision, err := a.Revision()
	l.Ledger.Confirmed(k, revision)
	return a, err
}

// SideLabel is 0 or 1, and changes now and then: objects come into what a selector of it chooses, and
// leave it.
const SideLabel = "side"

// Touch changes an object.
func (l *Load) Touch(ctx context.Context, c *ask.Client, k kinds.Kind, namespace, name string) (ask.Answer, error) {
	change := kinds.Fields{"metadata": kinds.Fields{
		"annotations": kinds.Fields{"touched": strconv.Itoa(rand.Int())}, "labels": kinds.Fields{SideLabel: strconv.Itoa(rand.IntN(2))},
	}}
	return l.Write(ctx, c, k, http.MethodPatch, k.Path(namespace)+"/"+name, change)
}

// Delete is the path by which an object goes at once.
func Delete(k kinds.Kind, namespace, name string) string {
	return k.Path(namespace) + "/" + name + "?gracePeriodSeconds=0"
}

// reviewTTL is the --review-ttl of listproxy under load, or less.
const reviewTTL = 10 * time.Second

// hasRight reports whether listproxy must remember in an outage that q may be asked: then a yes counts that was asked for
// no longer than twice the --review-ttl before.
func (l *Load) hasRight(q Question, at time.Time) bool {
	given, ok := l.given.Load(q.right())
	last, _ := given.(time.Time)
	return ok && at.Sub(last) < reviewTTL
}

// Put puts a question to listproxy. An answer from memory goes to the oracle. It must not be older than
// atLeast, nor, if it is the newest state, than the bound. A list that must hold all that was written before may
// be forwarded; the tally does not expect it from memory. The error says why there is no list.
func (l *Load) Put(ctx context.Context, via *ask.Client, q Question, atLeast uint64) (ask.List, ask.Answer, error) {
	asked := time.Now()
	out := l.isOut(asked) && l.hasRight(q, asked)
	a, err := via.GetAs(ctx, q.Form.Accept, q.Target())
	if ctx.Err() != nil {
		return ask.List{}, a, ctx.Err()
	}
	l.Tally.Heard(asked, a, err, !q.Recent())
	if out && q.Known() && a.Code != http.StatusOK {
		l.Tally.leftUnserved(q, cmp.Or(err, errors.New(a.String())))
	}
	if strings.HasSuffix(a.Source(), kubehttp.Unreachable) {
		l.outage.Store(time.Now().UnixNano())
	}
	if err != nil {
		return ask.List{}, ask.Answer{}, err
	}
	if a.Code != http.StatusOK {
		if a.FromMemory() {
			l.Tally.Wrong("%s: from memory, and not a list: %s", q, a)
		}
		return ask.List{}, a, errors.New(a.String())
	}
	l.given.Store(q.right(), asked)
	list, err := ask.ReadList(a.Body)
	if err != nil {
		l.Tally.Wrong("%s: not a list: %v: %s", q, err, a)
		return ask.List{}, a, fmt.Errorf("not a list: %w", err)
	}
	if a.FromMemory() {
		l.judge(Witness{Question: q, Answer: a, List: list, Asked: asked, Answered: time.Now()}, atLeast)
	}
	return list, a, nil
}

func (l *Load) judge(w Witness, atLeast uint64) {
	demand := oracle.List{Revision: atLeast}
	if w.Question.Newest() {
		demand.Holds = oracle.Within(l.boundAt(w.Answered), w.Asked)
	}
	if err := demand.Judge(w.List.Revision, l.Ledger.BeforeOfAll); err != nil {
		l.Tally.Wrong("%s: %v: %s", w.Question, err, w.Answer.Source())
	}
	if w.Question.Recent() {
		l.Tally.gaveRecent()
	}
	l.Oracle.Add(w)
}
