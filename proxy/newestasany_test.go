package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// namers answers who somebody is: "Bearer NAME" is NAME, and nobody can be asked while it is
// broken.
type namers struct {
	mu     sync.Mutex
	asked  []string
	broken bool
}

func (n *namers) answer(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	n.asked = append(n.asked, name)
	if n.broken {
		return nil, io.ErrUnexpectedEOF
	}
	return proxytest.JSONResponse(r, http.StatusCreated, fmt.Sprintf(
		`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"status":{"userInfo":{"username":%q,"groups":["of-%s","system:authenticated"]}}}`, name, name)), nil
}

// took returns who was asked about since it was last called.
func (n *namers) took() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.asked = nil }()
	return strings.Join(n.asked, " ")
}

// TestNewestAsAny: whom the policy names gets any for the newest state, and is told so; all others
// get what they ask for. The upstream is asked who they are once for a caller and TTL, whatever
// becomes of it, and only where it matters.
func TestNewestAsAny(t *testing.T) {
	for _, consistent := range []policy.ConsistentLists{policy.ConsistentNever, policy.ConsistentFaster} {
		synctest.Test(t, func(t *testing.T) { testNewestAsAny(t, consistent) })
	}
}

func testNewestAsAny(t *testing.T, consistent policy.ConsistentLists) {
	const ttl = 10 * time.Second
	w, who := newModelWorld(t), &namers{}
	w.probeTakes = 5 * time.Millisecond
	close(w.reviews) // each is answered at once
	h := w.handler
	whoAmI, err := authz.NewWhoAmI(authntest.SendAs(who.answer), &url.URL{Scheme: "https", Host: "upstream.example"}, authz.Config{TTL: ttl})
	expect.NoError(t, err)
	defer whoAmI.Close()
	h.WhoAmI = whoAmI
	sink := &auditSink{}
	log := audit.NewLog(sink, proxytest.DiscardLog())
	h.AuditLog = log
	if h.Policy, err = policy.ParseConfig("p", []byte(`{apiVersion: listproxy.io/v1alpha1, kind: Policy, resources: [
		{group: example.com, resource: widgets, newestAsAny: [{user: poller}, {group: of-grouped}]}]}`)); err != nil {
		t.Fatal(err)
	}
	h.Policy = h.Policy.With(policy.Switches{Consistent: consistent})
	const widgets = "/apis/example.com/v1/widgets"
	// ask sends a list, and says what became of it: the header, or why it is forwarded.
	ask := func(id authn.Identity, accepted bool, target string) string {
		t.Helper()
		caller := caller{identity: id, accepted: accepted, share: authn.ShareKey(id, true, ""), lastProbe: h.Collections.LastProbe()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Accept", "application/json")
		out := httptest.NewRecorder()
		list, found, why := h.decide(r, caller)
		if why == "" {
			why = serveWhole(h, out, r, caller, list, &found)
		}
		synctest.Wait()
		if why != "" {
			if found.semantics != policy.MostRecent {
				t.Errorf("%s is forwarded as %q", target, found.semantics)
			}
			return string(why)
		}
		if !strings.Contains(out.Body.String(), `"items":[{`) {
			t.Errorf("%s: %s", target, out.Body)
		}
		return out.Header().Get("Cache-Status")
	}
	// otherwise is what becomes of lists of the newest state of one object, for all others.
	otherwise := string(reason.MostRecent)
	if consistent != policy.ConsistentNever {
		otherwise = string(reason.FasterForwarded)
	}
	identities := authntest.New(t)
	named := func(name string) authn.Identity { return authntest.Identify(identities, "Bearer "+name) }
	if first := ask(named("poller"), true, widgets); first != string(reason.Warming) {
		t.Fatalf("the first list: %s", first)
	}
	time.Sleep(20 * time.Second) // it loads, and the API servers settle
	who.took()
	const given = "listproxy; hit; detail=any; newest-as-any"
	for _, step := range []struct {
		what   string
		id     authn.Identity
		new    bool // not accepted yet
		target string
		want   string
		asked  string
	}{
		{what: "a user", id: named("poller"), target: widgets, want: given, asked: "poller"},
		{what: "again", id: named("poller"), target: widgets, want: given},
		{what: "with a limit", id: named("poller"), target: widgets + "?limit=1", want: given},
		{what: "a member of a group", id: named("grouped"), target: widgets, want: given, asked: "grouped"},
		{what: "somebody else", id: named("other"), target: widgets, want: otherwise, asked: "other"},
		{what: "somebody else, again", id: named("other"), target: widgets, want: otherwise},
		{what: "a user who was verified here", id: identities.OfUser(&user.DefaultInfo{Name: "poller"}), target: widgets, want: given},
		{what: "of any other resource", id: named("stranger"), target: "/apis/example.com/v1/gadgets", want: "", asked: ""},
		{what: "by a token that is not accepted", id: named("new"), new: true, target: widgets, want: "", asked: ""},
		{what: "a page of the newest state", id: named("poller2"), target: widgets + "?limit=1&continue=" + "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoibiJ9", want: string(reason.MostRecent)},
	} {
		got := ask(step.id, !step.new, step.target)
		if asked := who.took(); asked != step.asked || step.want != "" && got != step.want || strings.Contains(got, "hit") && step.want == "" {
			t.Errorf("%s: %s, want %s; asked about %q, want %q", step.what, got, step.want, asked, step.asked)
		}
	}
	who.broken = true
	time.Sleep(ttl)
	if got, asked := ask(named("poller"), true, widgets), who.took(); got != otherwise || asked != "poller" {
		t.Errorf("while nobody can be asked: %s, and %q was asked about", got, asked)
	}
	if got, asked := ask(named("poller"), true, widgets), who.took(); got != otherwise || asked != "" {
		t.Errorf("soon after that: %s, and %q was asked about", got, asked)
	}
	who.broken = false
	time.Sleep(ttl)
	if got := ask(named("poller"), true, widgets); got != given {
		t.Errorf("when they can be asked again: %s", got)
	}
	expect.NoError(t, log.Close(t.Context()))
	lines := strings.Split(strings.TrimSpace(sink.String()), "\n")
	for _, line := range lines {
		if !strings.Contains(line, `"listproxy.io/newest-as-any":"true"`) || !strings.Contains(line, `"listproxy.io/semantics":"any"`) {
			t.Errorf("audited as %s", line)
		}
	}
	if len(lines) != 6 {
		t.Errorf("%d answers were audited, want 6:\n%s", len(lines), sink)
	}
}
