package policy

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
)

// getSelected returns the request of a list of path with these selectors, and options as query parameters.
func getSelected(path, labelSelector, fieldSelector string, options ...string) string {
	query := url.Values{}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	return get(strings.Join(append([]string{path + "?" + query.Encode()}, options...), "&"), alice)
}

// fieldSelectors has field selectors by the reason that Parse returns for them.
var fieldSelectors = map[reason.Reason][]string{
	reason.None: {
		"metadata.name=x", "metadata.name==x", "spec.nodeName=n,metadata.name=x", ",metadata.name=x,",
		"metadata.name=x,metadata.name=x", "metadata.name=y,metadata.name=x", "metadata.name=x,metadata.name!=x",
		"metadata.name=x,metadata.name=y/z", "metadata.name=x,metadata.name==y",
		"metadata.name=X_y:z", "metadata.name=..x", `metadata.name=a\,b`, "metadata.name=x ",
		"", "metadata.name!=x", "metadata.name!=", "metadata.name =x", "name=x", "spec.nodeName=n", "=,spec.nodeName=n",
		"a=" + strings.Repeat("b", 4094), strings.Repeat("a=b,", 63) + "a=b",
	},
	reason.NotCanonical: {
		"metadata.name=x,metadata.name=", "metadata.name=", "metadata.name==", "metadata.name=.", "metadata.name=..",
		"metadata.name=a/b", "metadata.name=100%", "=", ",", " ", "x", "metadata.name=x=y", `metadata.name=x\`, "metadata.name=\xff",
		"a=" + strings.Repeat("b", 4095), strings.Repeat("a=b,", 64) + "a=b", strings.Repeat("a!=b,", 64) + "c!=d, ",
	},
}

// TestCheckSelectors: for every combination of these, Single and CheckSelectors agree with the API server's own code.
func TestCheckSelectors(t *testing.T) {
	token := "continue=" + EncodeContinue(5, "ns/x\x00")
	for path, namespaced := range map[string]bool{
		"/api/v1/pods": true, "/api/v1/namespaces/ns/pods": true, "/api/v1/nodes": false,
		"/apis/certificates.k8s.io/v1beta1/podcertificaterequests": true, "/apis/example.com/v1/podcertificaterequests": true,
	} {
		for _, selector := range []string{
			"", "spec.nodeName=n", "metadata.name=x", "metadata.name!=x", "metadata.name=x,spec.nodeName=n", "metadata.name=x,metadata.name=y",
			"metadata.namespace=ns", "metadata.namespace=other", "metadata.namespace=NS", "metadata.namespace=", "metadata.namespace!=ns",
			"metadata.name=x,metadata.namespace=ns", "metadata.name=x,metadata.namespace=other", "metadata.name=x,metadata.namespace=NS",
			"metadata.name=x,metadata.namespace=", "metadata.name=x,metadata.namespace!=ns",
			"metadata.name=x,metadata.namespace=n1,metadata.namespace=n2",
		} {
			for _, options := range []string{
				"", "limit=5", token, "limit=5&" + token, "resourceVersion=5", "limit=1&resourceVersion=5", "limit=5&resourceVersion=0", "resourceVersion=0",
				"limit=1&resourceVersion=5&resourceVersionMatch=Exact", "limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan",
			} {
				r, why := parse(read(t, getSelected(path, "", selector, options)))
				if why != "" {
					t.Fatalf("%s with %q and %q is forwarded: %s", path, selector, options, why)
				}
				checkScope(t, r, namespaced)
			}
		}
	}
}

// checkScope requires that Single finds the object that the API server reads, and that CheckSelectors forwards the list if
// the API server reads another scope or another revision.
func checkScope(t *testing.T, r *Request, namespaced bool) {
	t.Helper()
	predicate := storage.SelectionPredicate{Label: r.Labels, Field: r.Fields, Limit: r.Options.Limit, Continue: r.Options.Continue}
	namespace := r.Namespace
	if narrow, ok := predicate.MatchesSingleNamespace(); ok && namespace == "" && len(validation.IsDNS1123Label(narrow)) == 0 {
		namespace = narrow
	}
	name, single := predicate.MatchesSingle()
	single = single && name != "" && len(content.IsPathSegmentName(name)) == 0 && (!namespaced || namespace != "")
	if !namespaced && r.Namespace != "" || r.Watch {
		return // the upstream has no such path, and matches every event of a watch with its selectors
	}
	gotNamespace, gotName, ok := r.Single(namespaced)
	if ok != single || ok && (gotName != name || namespaced && gotNamespace != namespace) {
		t.Errorf("%+v: single %t, %q/%q; upstream %t, %q/%q", r, ok, gotNamespace, gotName, single, namespace, name)
	}
	// The upstream refuses the field for PodCertificateRequests.
	refused := r.selectsNamespace() && (!namespaced || r.Group == "certificates.k8s.io")
	for _, atZero := range []LimitAtZero{LimitIgnored, LimitHonoured} {
		decision := r.Decide(atZero, ConsistentAlways)
		if !decision.Serve {
			continue
		}
		paged := decision.Limit > 0 || decision.Semantics == Continue
		narrowed := !single && namespace != r.Namespace && paged // the first page has another scope than later pages
		// The revision that the upstream reads depends on whether it reads a single object.
		exact, _, err := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
			ResourceVersion:      r.Options.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatch(r.Options.ResourceVersionMatch),
			Predicate:            predicate,
			Recursive:            !single,
		})
		wantsExact := decision.Semantics == Exact || decision.Semantics == Continue
		otherRevision := err != nil || wantsExact != (exact != 0)
		unusual := refused || narrowed || otherRevision
		why := r.CheckSelectors(namespaced, atZero)
		// CheckSelectors may forward more: it does not see whether the first page was narrowed, or a name is valid.
		_, selectsNamespace := r.Fields.RequiresExactMatch("metadata.namespace")
		mayForward := selectsNamespace && paged && r.Namespace == ""
		if unusual && why == reason.None || !unusual && !mayForward && why != reason.None {
			t.Errorf("%+v, limit at 0 %s: got reason %q; the upstream refuses the selector: %t, narrows pages: %t, reads another revision: %t",
				r, atZero, why, refused, narrowed, otherRevision)
		}
	}
}

// FuzzSelectors: whatever the selectors are, Parse finds the name that the API server authorizes (checkParse), and Single
// the object that it reads (checkScope).
func FuzzSelectors(f *testing.F) {
	f.Add("app in (a,b),!c,d>1", "metadata.name=x,metadata.namespace=ns", "limit=5&resourceVersion=7")
	for want, selectors := range fieldSelectors {
		for _, selector := range selectors {
			if _, got := parse(read(f, getSelected("/api/v1/pods", "", selector))); got != want {
				f.Errorf("%q: got reason %q, want %q", selector, got, want)
			}
			f.Add("a=b", selector, "limit=5")
		}
	}
	for _, labelSelector := range []string{
		"", "app", "app==web,tier", "app!=web", "app notin (db,web)", "!app", "empty=", "empty in ()", "tier>0,tier<2", "app>web",
		"example.com/x=y", " app = web , tier ", ",", "a b", "a in", "a in (b", "a=b=c", "-a", "a=-", "/a", "\xff", "a=\xff",
		strings.Repeat("app,", 63) + "app", strings.Repeat("a,", 64) + "a", "a in (" + strings.Repeat("b,", 2048) + "b)",
	} {
		f.Add(labelSelector, "", "")
	}
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector, options string) {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/ns/pods", "/api/v1/namespaces"} {
			text := getSelected(path, labelSelector, fieldSelector, options)
			raw, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
			if err != nil {
				return
			}
			checkParse(t, raw)
			r, why := parse(raw)
			if why != reason.None {
				continue
			}
			checkScope(t, r, true)
			checkScope(t, r, false)
		}
	})
}
