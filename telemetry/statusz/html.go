package statusz

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
)

//go:embed statusz.html
var statusHTML string

// statusAge is how long a status is shown before it is made again. All readers in that time get the
// same one.
const statusAge = time.Second

// Handler answers with what read returns: as a page for people, or as JSON with ?format=json or for
// an Accept header that prefers it. It asks read once a second at most, and never twice at a time.
// The page loads nothing from elsewhere, and its Content-Security-Policy says so. Clients must not
// be able to reach it.
func Handler(read func() Status, log *slog.Logger) (http.Handler, error) {
	page, err := newStatusPage()
	if err != nil {
		return nil, fmt.Errorf("the status page: %w", err)
	}
	forms := statusForms{read: read, page: page, turn: make(chan struct{}, 1)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Vary", "Accept")
		form, asJSON := forms.html, wantsJSON(r)
		if asJSON {
			form = forms.json
		}
		body, err := form(r.Context())
		if r.Context().Err() != nil {
			return
		}
		if err != nil {
			log.Error("the status page cannot be made", "error", err)
			http.Error(w, "the status page cannot be made: the log says why", http.StatusInternalServerError)
			return
		}
		if asJSON {
			h.Set("Content-Type", "application/json")
		} else {
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", page.policy)
			h.Set("Referrer-Policy", "no-referrer")
		}
		// An error means that the client has gone.
		_, _ = w.Write(body)
	}), nil
}

// statusForms makes the forms of a status, and keeps them for [statusAge]. It is safe for
// concurrent use; a reader who comes while one is being made waits for it.
type statusForms struct {
	read func() Status
	page *statusPage

	// turn is held by the one goroutine that may read or change the fields below.
	turn   chan struct{}
	since  time.Time // when status was read; zero: never
	status Status
	// asJSON and asHTML are made of status when somebody asks for them; nil before that. They are
	// shared, and not written to.
	asJSON, asHTML []byte
}

func (f *statusForms) json(ctx context.Context) ([]byte, error) {
	if err := f.await(ctx); err != nil {
		return nil, err
	}
	defer f.leave()
	f.renewLocked()
	return made(&f.asJSON, func(body *bytes.Buffer) error {
		encoder := json.NewEncoder(body)
		encoder.SetIndent("", "  ")
		return encoder.Encode(f.status)
	})
}

func (f *statusForms) html(ctx context.Context) ([]byte, error) {
	if err := f.await(ctx); err != nil {
		return nil, err
	}
	defer f.leave()
	f.renewLocked()
	return made(&f.asHTML, func(body *bytes.Buffer) error { return f.page.write(body, f.status) })
}

// await waits for the turn, or for the end of ctx, which is an error.
func (f *statusForms) await(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *statusForms) leave() { <-f.turn }

// renewLocked reads the status, if it is too old.
func (f *statusForms) renewLocked() {
	if !f.since.IsZero() && time.Since(f.since) < statusAge {
		return
	}
	status := f.read()
	status.Sort()
	// The time after reading, and not before: a reader who waited meanwhile need not read it again.
	f.since, f.status, f.asJSON, f.asHTML = time.Now(), status, nil, nil
}

// made returns what form points to, and makes it first if it is not there.
func made(form *[]byte, write func(*bytes.Buffer) error) ([]byte, error) {
	if *form != nil {
		return *form, nil
	}
	var body bytes.Buffer
	if err := write(&body); err != nil {
		return nil, err
	}
	*form = body.Bytes()
	return *form, nil
}

// statusPage is the page for people.
type statusPage struct {
	template *template.Template
	// policy is its Content-Security-Policy.
	policy string
}

func newStatusPage() (*statusPage, error) {
	parsed, err := template.New("statusz").Funcs(template.FuncMap{
		"bytes": formatBytes, "count": formatCount[int64], "seconds": formatSeconds, "share": formatShare,
		"bound": formatBound, "verified": formatVerified, "verifiedClass": verifiedClass, "span": formatSpan, "traffic": trafficRows,
		"inflight": formatInflight, "lists": formatLists, "newest": formatNewest, "bar": layBar, "percent": percentOf,
		"objects": formatCount[int], "barLabel": barLabel, "gaps": gapsOf, "history": formatHistory,
		"selfCheck": formatSelfCheck, "mismatches": formatMismatches, "mismatch": formatMismatch,
		"kept": formatKept, "join": strings.Join, "percentage": formatGCPercent, "upstream": formatUpstream,
		"ends": formatEnd, "lastCheck": lastCheckOf, "limit": formatLimit,
	}).Parse(statusHTML)
	if err != nil {
		return nil, err
	}
	p := &statusPage{template: parsed}
	// Its style and its script are the same in every page, so their digests allow them.
	var page bytes.Buffer
	if err := p.write(&page, Status{}); err != nil {
		return nil, err
	}
	p.policy = "default-src 'none'; style-src " + digestOf(page.String(), "style") + "; script-src " + digestOf(page.String(), "script") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return p, nil
}

// digestOf is what a Content-Security-Policy has for the element of a page.
func digestOf(page, element string) string {
	_, text, _ := strings.Cut(page, "<"+element+">")
	text, _, _ = strings.Cut(text, "</"+element+">")
	digest := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
}

const (
	// maxShownCollections and maxShownResources are shown at once; a click shows the others.
	maxShownCollections = 20
	maxShownResources   = 15
)

// write writes the page of a status that is sorted.
func (p *statusPage) write(w io.Writer, s Status) error {
	byNeed := slices.Clone(s.Collections)
	slices.SortStableFunc(byNeed, func(a, b Collection) int { return cmp.Compare(need(a), need(b)) })
	view := struct {
		Status
		First, More                   []Collection
		FirstResources, MoreResources []Resource
		States                        []stateCount
		FirstMismatches               []Mismatch
		MoreMismatches                int
	}{Status: s, States: statesOf(s.Collections)}
	view.First, view.More = split(byNeed, maxShownCollections)
	mismatches, more := split(s.SelfChecks.Mismatches, maxShownMismatches)
	view.FirstMismatches, view.MoreMismatches = mismatches, len(more)
	view.FirstResources, view.MoreResources = split(s.Resources, maxShownResources)
	return p.template.Execute(w, view)
}

// need orders collections: those that somebody should look at have a lower value.
func need(c Collection) int {
	switch {
	case c.SelfCheck.Mismatches > 0:
		return 0
	case c.State != StateLive:
		return 1
	}
	return 2
}

// split parts the first n from the others.
func split[T any](all []T, n int) (first, others []T) {
	n = min(n, len(all))
	return all[:n], all[n:]
}

// stateCount is how many collections are in a state.
type stateCount struct {
	State string
	Count int
}

// statesOf counts collections by state: live ones first, then by name.
func statesOf(collections []Collection) []stateCount {
	counts := map[string]int{}
	for _, c := range collections {
		counts[c.State]++
	}
	var states []stateCount
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		states = append(states, stateCount{state, counts[state]})
	}
	slices.SortStableFunc(states, func(a, b stateCount) int {
		return cmp.Compare(need(Collection{State: b.State}), need(Collection{State: a.State}))
	})
	return states
}

// wantsJSON says in which form r asks for the status.
func wantsJSON(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "json":
		return true
	case "html":
		return false
	}
	return goautoneg.Negotiate(strings.Join(r.Header.Values("Accept"), ","), []string{"text/html", "application/json"}) == "application/json"
}

// percentOf is part of all, from 0 to 100.
func percentOf(part, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(100, part*100/all)
}

// lastCheckOf says how the last check of an API server ended.
func lastCheckOf(e Endpoint) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.State == EndpointUnknown:
		return "–"
	}
	return "ok"
}

// gapsOf is how many gaps a history has.
func gapsOf(c Collection) int { return max(0, len(c.Spans)-1) }

// barLabel says in words what a history's bar shows.
func barLabel(c Collection) string {
	if len(c.Spans) == 0 {
		return "nothing is known"
	}
	text := fmt.Sprintf("revisions %d to %d, %s", c.Spans[0].From, c.Revision, formatHistory(c))
	switch n := gapsOf(c); n {
	case 0:
		return text + ", no gaps"
	case 1:
		return text + ", 1 gap"
	default:
		return fmt.Sprintf("%s, %d gaps", text, n)
	}
}
