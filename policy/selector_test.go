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

// getSelected returns the text of a GET of path with these selectors. options are the other query parameters.
func getSelected(path, labelSelector, fieldSelector, options string) string {
	query := url.Values{}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	return get(path+"?"+strings.Trim(query.Encode()+"&"+options, "&"), alice)
}

// fieldSelectors has field selectors by the reason that Parse returns for them.
var fieldSelectors = map[reason.Reason][]string{
	reason.None: {
		// One name, in any spelling and among other requirements.
		"metadata.name=x", "metadata.name==x", "spec.nodeName=n,metadata.name=x", ",metadata.name=x,",
		"metadata.name=x,metadata.name=x", "metadata.name=y,metadata.name=x", "metadata.name=x,metadata.name!=x",
		"metadata.name=x,metadata.name=y/z", "metadata.name=x,metadata.name==y",
		// Path segments that no object has as its name.
		"metadata.name=X_y:z", "metadata.name=..x", `metadata.name=a\,b`, "metadata.name=x ",
		// No name.
		"", "metadata.name!=x", "metadata.name!=", "metadata.name =x", "name=x", "spec.nodeName=n", "=,spec.nodeName=n",
		// At the bounds.
		"a=" + strings.Repeat("b", maxSelectorLength-2), strings.Repeat("a=b,", maxRequirements-1) + "a=b",
	},
	reason.NotCanonical: {
		// An empty name, or one that is not a path segment.
		"metadata.name=x,metadata.name=", "metadata.name=", "metadata.name==", "metadata.name=.", "metadata.name=..",
		"metadata.name=a/b", "metadata.name=100%",
		// Not a selector.
		"=", ",", " ", "x", "metadata.name=x=y", `metadata.name=x\`, "metadata.name=\xff",
		// Beyond the bounds.
		"a=" + strings.Repeat("b", maxSelectorLength-1), strings.Repeat("a=b,", maxRequirements) + "a=b",
		strings.Repeat("a!=b,", maxRequirements) + "c!=d, ",
	},
}

// TestFieldSelectors: Parse accepts a field selector that kube-apiserver reads in one way only. For any other, it returns
// NotCanonical.
func TestFieldSelectors(t *testing.T) {
	for want, selectors := range fieldSelectors {
		for _, selector := range selectors {
			checkReason(t, want, getSelected("/api/v1/pods", "", selector, ""))
		}
	}
}

// TestCheckSelectors: for each combination of a path, a field selector and options below, Single finds the object that the API
// server reads, and checkSelectors forwards the list if listproxy would answer it differently (checkScope).
func TestCheckSelectors(t *testing.T) {
	token := "continue=" + EncodeContinue(5, "ns/x\x00")
	for path, namespaced := range map[string]bool{ // whether the resource has namespaces
		"/api/v1/pods": true, "/api/v1/namespaces/ns/pods": true, "/api/v1/nodes": false,
		// The upstream refuses metadata.namespace for podcertificaterequests of certificates.k8s.io, but not of another group.
		"/apis/certificates.k8s.io/v1beta1/podcertificaterequests": true, "/apis/example.com/v1/podcertificaterequests": true,
	} {
		for _, selector := range []string{
			"", "spec.nodeName=n", "metadata.name=x", "metadata.name!=x", "metadata.name=x,spec.nodeName=n",
			"metadata.name=x,metadata.name=y", "metadata.namespace=ns", "metadata.namespace=other", "metadata.namespace=NS",
			"metadata.namespace=", "metadata.namespace!=ns", "metadata.name=x,metadata.namespace=ns",
			"metadata.name=x,metadata.namespace=other", "metadata.name=x,metadata.namespace=NS", "metadata.name=x,metadata.namespace=",
			"metadata.name=x,metadata.namespace!=ns", "metadata.name=x,metadata.namespace=n1,metadata.namespace=n2",
		} {
			for _, options := range []string{
				"", "limit=5", token, "limit=5&" + token, "resourceVersion=0", "limit=5&resourceVersion=0",
				"resourceVersion=5", "limit=1&resourceVersion=5",
				"limit=1&resourceVersion=5&resourceVersionMatch=Exact", "limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan",
			} {
				r, why := parse(read(t, getSelected(path, "", selector, options)))
				if why != reason.None {
					t.Fatalf("%s with %q and %q is forwarded: %s", path, selector, options, why)
				}
				checkScope(t, r, namespaced)
			}
		}
	}
}

// scope is what the API server reads for a list: a single object by its name, or all objects of a namespace.
type scope struct {
	namespace string // "": all namespaces
	name      string // of the single object
	single    bool   // a single object is read
}

// predicateOf returns the selectors of r as the API server's storage gets them.
func predicateOf(r *Request) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: r.Labels, Field: r.Fields, Limit: r.Options.Limit, Continue: r.Options.Continue}
}

// upstreamScope returns what the API server reads for r. It follows registry.Store.ListPredicate of k8s.io/apiserver.
func upstreamScope(r *Request, namespaced bool) scope {
	predicate := predicateOf(r)
	namespace := r.Namespace
	selected, isSelected := predicate.MatchesSingleNamespace()
	if namespace == "" && isSelected && len(validation.IsDNS1123Label(selected)) == 0 {
		namespace = selected
	}
	name, isNamed := predicate.MatchesSingle()
	isValidName := name != "" && len(content.IsPathSegmentName(name)) == 0
	hasNeededNamespace := !namespaced || namespace != ""
	return scope{namespace: namespace, name: name, single: isNamed && isValidName && hasNeededNamespace}
}

// checkScope compares listproxy with the API server for the list r. It checks what Single finds (checkSingle), and whether the
// list is served (checkServed), with both meanings of the limit at resourceVersion=0.
func checkScope(t *testing.T, r *Request, namespaced bool) {
	t.Helper()
	// A watch has no scope, since the upstream matches its events one by one. Resources of the cluster have no path with a
	// namespace.
	isUnknownPath := r.Namespace != "" && !namespaced
	if r.Watch || isUnknownPath {
		return
	}
	want := upstreamScope(r, namespaced)
	checkSingle(t, r, namespaced, want)
	for _, atZero := range []LimitAtZero{LimitIgnored, LimitHonoured} {
		decision := r.Decide(atZero, ConsistentAll)
		if decision.Reason == reason.None { // otherwise r is forwarded, whatever its selectors are
			checkServed(t, r, namespaced, atZero, want, decision)
		}
	}
}

// checkSingle requires that Single finds the object of want if want is a single object, and none otherwise.
func checkSingle(t *testing.T, r *Request, namespaced bool, want scope) {
	t.Helper()
	namespace, name, isSingle := r.Single(namespaced)
	if isSingle != want.single {
		t.Errorf("%+v: Single finds an object: %t, want %t", r, isSingle, want.single)
	}
	hasOtherNamespace := namespaced && namespace != want.namespace
	if isSingle && (name != want.name || hasOtherNamespace) {
		t.Errorf("%+v: Single finds %q/%q, want %q/%q", r, namespace, name, want.namespace, want.name)
	}
}

// checkServed requires that checkSelectors forwards the list r in these three cases. In all others it must not forward r, with
// one exception, which is explained below.
//
//  1. The upstream refuses the selector.
//  2. The upstream's pages differ in their scope.
//  3. The upstream reads another revision than listproxy.
//
// want is the scope that the upstream reads. decision says how listproxy would serve the list.
func checkServed(t *testing.T, r *Request, namespaced bool, atZero LimitAtZero, want scope, decision Decision) {
	t.Helper()
	// 1. The upstream refuses metadata.namespace for nodes, the only resource of the cluster in these tests, and for
	// PodCertificateRequests, the only resource of their group in these tests.
	noNamespaceField := !namespaced || r.Group == "certificates.k8s.io"
	isRefused := r.selectsNamespace() && noNamespaceField

	// 2. The upstream's first page is of one namespace, and its later pages are of all.
	isPaged := decision.Limit > 0 || decision.Semantics == Continue
	pagesDiffer := isPaged && !want.single && want.namespace != r.Namespace

	// 3. The upstream reads at exactly this revision, or at one of its choice if revision is 0. The revision depends on
	// whether the upstream reads a single object.
	revision, _, err := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      r.Options.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(r.Options.ResourceVersionMatch),
		Predicate:            predicateOf(r),
		Recursive:            !want.single,
	})
	servesExact := decision.Semantics == Exact || decision.Semantics == Continue
	readsExact := revision != 0
	otherRevision := err != nil || servesExact != readsExact
	mustForward := isRefused || pagesDiffer || otherRevision

	// Case 2 has an exception. For a list in pages over all namespaces that selects metadata.namespace=x, checkSelectors may
	// forward without need: it does not check whether x is a valid name, or whether the first page was of one namespace.
	_, selectsOneNamespace := r.Fields.RequiresExactMatch("metadata.namespace")
	mayForward := selectsOneNamespace && isPaged && r.Namespace == ""
	why := r.checkSelectors(namespaced, atZero)
	switch {
	case mustForward && why == reason.None:
		t.Errorf("%+v, limit at 0 %s: is served, but the upstream refuses the selector: %t, has pages that differ: %t, "+
			"reads another revision: %t", r, atZero, isRefused, pagesDiffer, otherRevision)
	case !mustForward && !mayForward && why != reason.None:
		t.Errorf("%+v, limit at 0 %s: is forwarded as %s, though the upstream reads the same", r, atZero, why)
	}
}

// FuzzSelectors: whatever the selectors are, Parse finds the name for which the API server authorizes the list (checkParse),
// and Single finds the object that the API server reads (checkScope).
func FuzzSelectors(f *testing.F) {
	f.Add("app in (a,b),!c,d>1", "metadata.name=x,metadata.namespace=ns", "limit=5&resourceVersion=7")
	for _, selectors := range fieldSelectors {
		for _, selector := range selectors {
			f.Add("a=b", selector, "limit=5")
		}
	}
	for _, labelSelector := range []string{
		// Each operator.
		"", "app", "app==web,tier", "app!=web", "app notin (db,web)", "!app", "empty=", "empty in ()", "tier>0,tier<2", "app>web",
		// Other spellings, and no selectors.
		"example.com/x=y", " app = web , tier ", ",", "a b", "a in", "a in (b", "a=b=c", "-a", "a=-", "/a", "\xff", "a=\xff",
		// At the bounds, and beyond them.
		strings.Repeat("app,", maxRequirements-1) + "app", strings.Repeat("a,", maxRequirements) + "a",
		"a in (" + strings.Repeat("b,", maxSelectorLength/2) + "b)",
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
			for _, namespaced := range []bool{false, true} {
				checkScope(t, r, namespaced)
			}
		}
	})
}
