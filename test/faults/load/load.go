package load

import (
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

// Bound is the shortest --staleness-bound that listproxy accepts.
const Bound = 6 * time.Second

const (
	// outageGrace is the time for which an outage is assumed to go on after the last answer that showed it.
	outageGrace = 5 * time.Second
	// reviewTTL is at most the --review-ttl of every case: listproxy remembers for at least this time that a caller has a
	// right.
	reviewTTL = 10 * time.Second
)

// Load writes objects, asks listproxy for lists of them, and judges the answers. Safe for concurrent use.
type Load struct {
	Ledger   oracle.Ledger[kinds.Kind]
	Tally    *Tally
	Verifier *Verifier
	// Bound is the --staleness-bound of listproxy under load.
	Bound time.Duration
	// BreaksOften means that an outage may begin and end between two answers, so that none says that there was one.
	BreaksOften bool

	// lastServed maps each right to the time.Time of the last request for a list that needs the right and got a 200.
	lastServed sync.Map
	// lastOutage is the time of the last answer that said that no API server can be reached, in nanoseconds since 1970.
	lastOutage atomic.Int64
}

// New returns a load whose answers are compared with those of the references.
func New(references ...*ask.Client) *Load {
	t := &Tally{}
	return &Load{Tally: t, Verifier: newVerifier(t, references...), Bound: Bound}
}

// maxAge returns the greatest age that a state from memory may have at a time. Outside an outage that is Bound.
//
// In an outage listproxy goes on giving its state for Bound. With a Bound of 6 s, a state that is 6 s old when the outage
// begins is 12 s old when listproxy stops giving it. outageGrace is added, since the outage is known only by the answers that
// show it.
func (l *Load) maxAge(at time.Time) time.Duration {
	if l.BreaksOften || l.inOutage(at) {
		return 2*l.Bound + outageGrace
	}
	return l.Bound
}

// inOutage reports whether an answer said shortly before that no API server can be reached.
func (l *Load) inOutage(at time.Time) bool {
	return at.Sub(time.Unix(0, l.lastOutage.Load())) < outageGrace
}

// Write sends a write of an object of a kind, and records the revision unless the object is deleted.
func (l *Load) Write(ctx context.Context, c *ask.Client, kind kinds.Kind, method, path string, object any) (ask.Answer, error) {
	a, err := c.Do(ctx, method, path, object)
	if err != nil || method == http.MethodDelete {
		return a, err
	}
	revision, err := a.Revision()
	l.Ledger.Confirm(kind, revision)
	return a, err
}

// SideLabel is a label that [Load.Touch] sets to 0 or 1 at random, so that objects enter and leave what a selector chooses.
const SideLabel = "side"

// Touch changes an annotation of an object, and sets its [SideLabel] to a random value.
func (l *Load) Touch(ctx context.Context, c *ask.Client, kind kinds.Kind, namespace, name string) (ask.Answer, error) {
	change := kinds.Fields{"metadata": kinds.Fields{
		"annotations": kinds.Fields{"touched": strconv.Itoa(rand.Int())},
		"labels":      kinds.Fields{SideLabel: strconv.Itoa(rand.IntN(2))},
	}}
	return l.Write(ctx, c, kind, http.MethodPatch, kind.Path(namespace)+"/"+name, change)
}

// DeletePath returns the path for a DELETE without a grace period.
func DeletePath(kind kinds.Kind, namespace, name string) string {
	return kind.Path(namespace) + "/" + name + "?gracePeriodSeconds=0"
}

// remembersRight reports whether listproxy must still know that the caller has the right that q needs: a list that needs the
// same right was given less than reviewTTL before. (In an outage listproxy remembers a right for up to twice --review-ttl. The
// load does not require that.)
func (l *Load) remembersRight(q Question, at time.Time) bool {
	value, ok := l.lastServed.Load(q.right())
	last, _ := value.(time.Time)
	return ok && at.Sub(last) < reviewTTL
}

// Ask asks listproxy for a list, counts the answer, and judges it if it is from memory. Its revision must be at least
// minRevision, and the state must not be too old for the question. The error says why there is no list.
func (l *Load) Ask(ctx context.Context, client *ask.Client, q Question, minRevision uint64) (ask.List, ask.Answer, error) {
	asked := time.Now()
	mustServe := q.IsServedInOutage() && l.inOutage(asked) && l.remembersRight(q, asked)
	answer, err := client.GetAs(ctx, q.Representation.Accept, q.Target())
	if ctx.Err() != nil {
		return ask.List{}, answer, ctx.Err()
	}
	isCacheable := !q.IsConsistent() // consistent lists may be forwarded
	l.Tally.AddAnswer(asked, answer, err, isCacheable)
	if strings.HasSuffix(answer.Source(), kubehttp.CacheHitUnreachable) {
		l.lastOutage.Store(time.Now().UnixNano())
	}
	if err != nil || answer.Code != http.StatusOK {
		return ask.List{}, answer, l.judgeFailure(q, answer, err, mustServe)
	}
	l.lastServed.Store(q.right(), asked)
	list, err := ask.ReadList(answer.Body)
	if err != nil {
		l.Tally.AddMistake("%s: not a list: %v: %s", q, err, answer)
		return ask.List{}, answer, fmt.Errorf("not a list: %w", err)
	}
	if answer.FromMemory() {
		l.judge(Hit{Question: q, Answer: answer, List: list, Asked: asked, Answered: time.Now()}, minRevision)
	}
	return list, answer, nil
}

// judgeFailure counts an answer that is no list, and returns the reason why there is none. An answer from memory that is no
// list is a mistake. mustServe says that memory had to give a list: without one, the question is counted as unserved.
func (l *Load) judgeFailure(q Question, answer ask.Answer, err error, mustServe bool) error {
	if err == nil {
		err = errors.New(answer.String())
		if answer.FromMemory() {
			l.Tally.AddMistake("%s: from memory, and not a list: %s", q, answer)
		}
	}
	if mustServe && answer.Code != http.StatusOK {
		l.Tally.Add(func(c *Counts) { c.Unserved = append(c.Unserved, fmt.Sprintf("%s: %v", q, err)) })
	}
	return err
}

// judge checks the revision and the age of a hit at once, and leaves its content to the verifier.
func (l *Load) judge(hit Hit, minRevision uint64) {
	required := oracle.List{Revision: minRevision}
	if hit.Question.HasMaxAge() {
		required.ConfirmedBy = oracle.Within(l.maxAge(hit.Answered), hit.Asked)
	}
	if err := required.Judge(hit.List.Revision, l.Ledger.BeforeOfAll); err != nil {
		l.Tally.AddMistake("%s: %v: %s", hit.Question, err, hit.Answer.Source())
	}
	if hit.Question.IsConsistent() {
		l.Tally.Add(func(c *Counts) { c.Consistent++ })
	}
	l.Verifier.Add(hit)
}
