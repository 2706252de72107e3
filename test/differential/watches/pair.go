package watches

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// The kinds of differences, beside those of lists.
const (
	// Events are other ones than the API server's, or at another place.
	Events differential.Kind = "events"
	// Bookmarks are made of other bytes.
	Bookmarks differential.Kind = "bookmarks"
	// Refusal is an ERROR that the API server does not send, or sends and listproxy does not.
	Refusal differential.Kind = "refusal"
	// Ended is a stream that ended while kube-apiserver's went on, or the other way round.
	Ended differential.Kind = "ended"
	// Reference is a mistake of this package: the API server is not what it demands.
	Reference differential.Kind = "reference"
)

// pair is one watch at both sides.
type pair struct {
	*Comparator
	form
	reads time.Duration // before it looks at what has come

	served, proxied *stream // by kube-apiserver, and by listproxy
	truth           *track
	wants           oracle.Watch
}

func (p *pair) close() {
	for _, s := range []*stream{p.served, p.proxied} {
		if s != nil {
			s.close()
		}
	}
	if p.truth != nil {
		p.truth.close()
	}
}

// run compares.
func (p *pair) run(ctx context.Context) (*differential.Difference, error) {
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if d, done := p.headers(); d != nil || done {
		return d, nil
	}
	if p.odd {
		return p.oddly(ctx), nil
	}
	poll.Pause(ctx, p.reads)
	newest, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	p.wants.UpTo = newest
	if d, err := p.settle(ctx); d != nil || err != nil {
		return d, err
	}
	if d, err := p.learn(ctx); d != nil || err != nil {
		return d, err
	}
	return p.future(ctx)
}

// compared counts what came to its end.
func (p *pair) compared() {
	said, _, _ := p.proxied.said()
	for _, e := range said {
		p.report.Count("events of type " + string(e.Type))
	}
	origin := strings.TrimPrefix(p.proxied.header.Get("Cache-Status"), "listproxy; ")
	hit := strings.HasPrefix(origin, "hit")
	if hit && p.proxied.header.Get("Content-Encoding") != "" {
		p.report.Count("compressed, from memory")
	}
	p.report.Compared(differential.Comparison{
		Origin: origin, FromMemory: hit, Answerable: p.answerable && p.proxied.status == http.StatusOK,
		Missed: fmt.Sprintf("%s %s rv=%s", origin, p.Resource.Resource, p.start),
		Of:     []string{fmt.Sprintf("%-17s %s", p.representation, p.selector), fmt.Sprintf("rv=%s sie=%s", p.start, p.initial)},
	})
}

// likeServed compares listproxy's bookmarks with kube-apiserver's, as far as these are known.
func (p *pair) likeServed() (d *differential.Difference, known bool) {
	said, _, _ := p.proxied.said()
	got, want, known := p.learned.wrong(p.form, said)
	if want != "" {
		d = &differential.Difference{Kind: Bookmarks, Detail: oracle.Difference(got.Object, []byte(want))}
	}
	return d, known
}

// learn has kube-apiserver send the bookmarks of this form, if listproxy has sent one of which
// nothing is known yet.
func (p *pair) learn(ctx context.Context) (*differential.Difference, error) {
	d, known := p.likeServed()
	if d != nil || known {
		return d, nil
	}
	q := p.form.after(p.wants.UpTo)
	q.Header.Set("Accept", accepts[p.representation][0])
	q.Query.Set("allowWatchBookmarks", "true")
	q.Query.Set("timeoutSeconds", "3") // two seconds before the end there is one
	if p.options.WatchList {
		q.Query.Set("sendInitialEvents", "true")
		q.Query.Set("resourceVersionMatch", "NotOlderThan")
	}
	s, err := open(ctx, p.direct, q, p.options.Patience)
	if err != nil {
		return nil, err
	}
	defer s.close()
	select {
	case <-s.read:
	case <-ctx.Done():
	}
	said, _, _ := s.said()
	p.learned.learn(p.form, said)
	if d, known = p.likeServed(); d == nil && !known {
		p.report.Count("bookmarks of a sort not seen before")
	}
	return d, nil
}

// future looks for a revision that listproxy told before there was one.
func (p *pair) future(ctx context.Context) (*differential.Difference, error) {
	said, _, _ := p.proxied.said()
	newest, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range said {
		if e.Revision > newest {
			return &differential.Difference{Kind: Events, Detail: fmt.Sprintf("%v, and the newest revision is %d", e, newest)}, nil
		}
	}
	return nil, nil
}

// open puts the question to both sides, and asks for the truth before.
func (p *pair) open(ctx context.Context) (err error) {
	p.wants = oracle.Watch{Bookmarks: p.form.bookmarks, Revision: p.Revision, Least: p.past(p.Resource)}
	p.wants.Begins, p.wants.Ending = p.begins(p.options.WatchList)
	p.wants.From = p.wants.Least
	if p.wants.Begins == oracle.FromRevision {
		p.wants.From = min(p.Revision, p.cluster.Ledger.NewestOfAll())
	}
	if !p.odd {
		if p.truth, err = openTrack(ctx, p.direct, p.form, p.wants.From, p.options.Patience); err != nil {
			return err
		}
	}
	if p.start == unset {
		p.wants.Least = max(p.wants.Least, p.cluster.Ledger.NewestOfAll())
	}
	var failures [2]error
	var all sync.WaitGroup
	all.Go(func() { p.served, failures[0] = open(ctx, p.direct, p.form.Question, p.options.Patience) })
	all.Go(func() { p.proxied, failures[1] = open(ctx, p.proxy, p.form.Question, p.options.Patience) })
	all.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	p.wants.Most, err = p.now(ctx)
	return err
}

// headers compares what comes before the events. It is done, if nothing follows.
func (p *pair) headers() (d *differential.Difference, done bool) {
	if !strings.HasPrefix(p.proxied.header.Get("Cache-Status"), "listproxy; ") {
		return &differential.Difference{Kind: differential.Unmarked, Detail: fmt.Sprint(p.proxied.header)}, true
	}
	if p.proxied.status != p.served.status {
		return &differential.Difference{Kind: differential.Status, Detail: fmt.Sprintf(
			"%d, not %d:\n  %.300s\n  %.300s", p.proxied.status, p.served.status, p.proxied.body, p.served.body,
		)}, true
	}
	if d := differential.HeaderDifference(p.form.Question, p.proxied.header, p.served.header); d != nil {
		return d, true
	}
	if p.served.status == http.StatusOK {
		return nil, false
	}
	if !bytes.Equal(p.proxied.body, p.served.body) {
		return &differential.Difference{Kind: differential.Body, Detail: oracle.Difference(p.proxied.body, p.served.body)}, true
	}
	return nil, true
}

// settle waits until both sides have said what is due, and returns what is wrong if that does not
// come. Between two streams of kube-apiserver's own a busy machine may lie for longer: that is not
// what is looked for.
func (p *pair) settle(ctx context.Context) (*differential.Difference, error) {
	for begun := time.Now(); ; {
		d, err := p.look()
		most := p.options.Patience
		if d != nil && d.Kind == Reference {
			most *= 5
		}
		late := time.Since(begun) > most
		if d == nil && err == nil || err != nil || late || ctx.Err() != nil {
			return d, err
		}
		poll.Pause(ctx, 20*time.Millisecond)
	}
}

// look compares what both have said so far.
func (p *pair) look() (*differential.Difference, error) {
	served, servedEnded, servedErr := p.served.said()
	proxied, proxiedEnded, proxiedErr := p.proxied.said()
	if proxiedErr != nil || servedErr != nil {
		return &differential.Difference{Kind: Ended, Detail: fmt.Sprintf("listproxy's stream: %v, and kube-apiserver's: %v", proxiedErr, servedErr)}, nil
	}
	if d, done, err := p.refusals(served, proxied); d != nil || done || err != nil {
		return d, err
	}
	if p.truth == nil {
		return nil, errElsewhere
	}
	if p.truth.lost() {
		p.report.Count("of a revision that the API server has lost")
		return nil, errElsewhere
	}
	if p.seconds == 0 && servedEnded != proxiedEnded {
		return &differential.Difference{Kind: Ended, Detail: fmt.Sprintf("after %d events: %t, and kube-apiserver's after %d: %t", len(proxied), proxiedEnded, len(served), servedEnded)}, nil
	}
	wants := p.wants
	wants.State, wants.Events = p.truth.state, p.truth.events()
	if d := found(Reference, wants.Judge(served, servedEnded)); d != nil {
		return d, nil
	}
	p.learned.learn(p.form, served)
	return found(Events, wants.Judge(proxied, proxiedEnded)), nil
}

// found makes a difference of what is wrong, if anything is.
func found(kind differential.Kind, wrong error) *differential.Difference {
	if wrong == nil {
		return nil
	}
	return &differential.Difference{Kind: kind, Detail: wrong.Error()}
}

// numbers in refusals are how far the API server is.
var numbers = regexp.MustCompile(`current: \d+|\(\d+\)`)

// refusals compares what is said in place of events. It is done, if there was a refusal, or nothing
// but its absence at one side.
func (p *pair) refusals(served, proxied []oracle.Event) (d *differential.Difference, done bool, err error) {
	refused := func(said []oracle.Event) bool { return len(said) > 0 && said[len(said)-1].Type == watch.Error }
	switch {
	case !refused(served) && !refused(proxied):
		return nil, false, nil
	case refused(served) && refused(proxied):
		if len(served) != len(proxied) {
			return nil, false, errElsewhere
		}
		got, want := proxied[len(proxied)-1].Object, served[len(served)-1].Object
		if !bytes.Equal(numbers.ReplaceAll(got, nil), numbers.ReplaceAll(want, nil)) {
			return &differential.Difference{Kind: Refusal, Detail: oracle.Difference(got, want)}, true, nil
		}
		p.report.Count("refused by both")
		return nil, true, nil
	case p.start == future:
		return nil, false, errElsewhere // it came in the meantime, or a side gave up before
	case refused(served) && p.start != distant && len(proxied) > 0:
		// listproxy may remember more than the API server.
		p.report.Count("of a revision that the API server has lost")
		return nil, false, errElsewhere
	}
	return &differential.Difference{Kind: Refusal, Detail: fmt.Sprintf(
		"%d events, of which the last is a refusal: %t; kube-apiserver's %d: %t",
		len(proxied), refused(proxied), len(served), refused(served))}, false, nil
}

// oddly compares what is odd: that both end, or neither, and what they said.
func (p *pair) oddly(ctx context.Context) *differential.Difference {
	poll.Pause(ctx, 300*time.Millisecond)
	var d *differential.Difference
	for begun := time.Now(); time.Since(begun) < p.options.Patience && ctx.Err() == nil; poll.Pause(ctx, 20*time.Millisecond) {
		if d = p.endsAlike(); d == nil {
			break
		}
	}
	return d
}

// endsAlike compares whether both have ended, and with as many events.
func (p *pair) endsAlike() *differential.Difference {
	served, servedEnded, servedErr := p.served.said()
	proxied, proxiedEnded, proxiedErr := p.proxied.said()
	if servedEnded == proxiedEnded && (servedErr == nil) == (proxiedErr == nil) && (!servedEnded || len(served) == len(proxied)) {
		return nil
	}
	return &differential.Difference{Kind: Ended, Detail: fmt.Sprintf(
		"%d events, ended: %t, %v; kube-apiserver's %d: %t, %v", len(proxied), proxiedEnded, proxiedErr, len(served), servedEnded, servedErr,
	)}
}
