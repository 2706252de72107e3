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
	"github.com/listproxy/listproxy/test/expect"
)

// selecting is a list of a path, in a namespace or not, with these selectors.
func selecting(path, labelSelector, fieldSelector string, options ...string) string {
	query := url.Values{}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	return get(strings.Join(append([]string{path + "?" + query.Encode()}, options...), "&"), alice)
}

// TestSelectorName: a name is what the API server authorizes, in every spelling.
func TestSelectorName(t *testing.T) {
	check := func(selector, name string, why reason.Reason) {
		t.Helper()
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/ns/pods", "/api/v1/namespaces", "/apis/example.com/v1/things"} {
			r := read(t, selecting(path, "", selector))
			if got, reason := parse(r); reason != why || got.Name != name {
				t.Errorf("%s with %q: name %q, reason %q; want %q, %q", path, selector, got.Name, reason, name, why)
			}
			checkParse(t, r)
		}
	}
	for name, selectors := range map[string][]string{
		"x": {
			"metadata.name=x", "metadata.name==x", "spec.nodeName=n,metadata.name=x", ",metadata.name=x,",
			"metadata.name=x,metadata.name=x", "metadata.name=y,metadata.name=x", "metadata.name=x,metadata.name!=x",
			"metadata.name=x,metadata.name=y/z",
		},
		"X_y:z": {"metadata.name=X_y:z"},
		"..x":   {"metadata.name=..x"},
		"a,b":   {`metadata.name=a\,b`},
		"y":     {"metadata.name=x,metadata.name==y"},
		"": {
			"", "metadata.name!=x", "metadata.name!=", "metadata.name =x", "name=x", "spec.nodeName=n", "=,spec.nodeName=n",
			"a=" + strings.Repeat("b", 4094), strings.Repeat("a=b,", 63) + "a=b",
		},
	} {
		for _, selector := range selectors {
			check(selector, name, "")
		}
	}
	check("metadata.name=x ", "x ", "")
	for _, selector := range []string{
		"metadata.name=x,metadata.name=", "metadata.name=", "metadata.name==", "metadata.name=.", "metadata.name=..",
		"metadata.name=a/b", "metadata.name=100%", "=", ",", " ", "x", "metadata.name=x=y", `metadata.name=x\`, "metadata.name=\xff",
		"a=" + strings.Repeat("b", 4095), strings.Repeat("a=b,", 64) + "a=b", strings.Repeat("a!=b,", 64) + "c!=d, ",
	} {
		check(selector, "", reason.NotCanonical)
	}
}

// selectorCase is a list with a field selector, and what the upstream reads for it.
type selectorCase struct {
	path, selector string
	options        []string
	namespaced     bool
	// single is "namespace/name", or empty for a range.
	single string
	reason reason.Reason
}

// TestCheckSelectorsOfHonouredLimits: a page at resourceVersion=0 is like any other.
func TestCheckSelectorsOfHonouredLimits(t *testing.T) {
	for _, test := range []struct {
		path, selector string
		options        []string
		want           reason.Reason
	}{
		{"/api/v1/pods", "metadata.namespace=ns", []string{"limit=5", "resourceVersion=0"}, reason.NotCanonical},
		{"/api/v1/pods", "metadata.namespace=ns", []string{"resourceVersion=0"}, ""},
		{"/api/v1/namespaces/ns/pods", "metadata.namespace=ns", []string{"limit=5", "resourceVersion=0"}, ""},
		{"/api/v1/pods", "spec.nodeName=n", []string{"limit=5", "resourceVersion=0"}, ""},
		// Never exact, so not odd.
		{"/api/v1/namespaces/ns/pods", "metadata.name=x", []string{"limit=1", "resourceVersion=0"}, ""},
		{"/api/v1/pods", "metadata.name=x,metadata.namespace=ns", []string{"limit=1", "resourceVersion=0"}, ""},
		{"/api/v1/namespaces/ns/pods", "metadata.name=x", []string{"limit=1", "resourceVersion=5"}, reason.NotCanonical},
	} {
		t.Run(test.path+" "+test.selector+" "+strings.Join(test.options, " "), func(t *testing.T) {
			r, reason := parse(read(t, selecting(test.path, "", test.selector, test.options...)))
			if reason != "" {
				t.Fatalf("forwarded: %s", reason)
			}
			expect.Same(t, test.want, r.CheckSelectors(true, LimitHonoured))
		})
	}
}

func TestCheckSelectors(t *testing.T) {
	const all, one, nodes = "/api/v1/pods", "/api/v1/namespaces/ns/pods", "/api/v1/nodes"
	const both = "metadata.name=x,metadata.namespace=ns"
	token := "continue=" + EncodeContinue(5, "ns/x\x00")
	for _, test := range []selectorCase{
		{all, "", nil, true, "", ""},
		{all, "spec.nodeName=n", nil, true, "", ""},
		{all, "spec.nodeName=n", []string{"limit=5", token}, true, "", ""},

		// A single key needs a namespace.
		{one, "metadata.name=x", nil, true, "ns/x", ""},
		{one, "metadata.name=x,spec.nodeName=n", []string{"limit=1", "resourceVersion=5", "resourceVersionMatch=Exact"}, true, "ns/x", ""},
		{one, "metadata.name=x", []string{"limit=1", "resourceVersion=5", "resourceVersionMatch=NotOlderThan"}, true, "ns/x", ""},
		{one, "metadata.name=x", []string{"limit=1", "resourceVersion=0"}, true, "ns/x", ""},
		{one, "metadata.name=x", []string{"resourceVersion=5"}, true, "ns/x", ""},
		{one, "metadata.name=x", []string{"limit=1", "resourceVersion=5"}, true, "ns/x", reason.NotCanonical},
		{one, "metadata.name=x", []string{token}, true, "", ""},
		{one, "metadata.name=x,metadata.namespace=other", nil, true, "ns/x", ""},
		{one, "metadata.name=x,metadata.name=y", nil, true, "ns/x", ""},
		{one, "metadata.name!=x", nil, true, "", ""},
		{all, "metadata.name=x", nil, true, "", ""},
		{all, "metadata.name=x", []string{"limit=1", "resourceVersion=5"}, true, "", ""},
		{all, both, nil, true, "ns/x", ""},
		{all, both, []string{"limit=1", "resourceVersion=5", "resourceVersionMatch=Exact"}, true, "ns/x", ""},
		{all, both, []string{"limit=1", "resourceVersion=5"}, true, "ns/x", reason.NotCanonical},
		{all, both, []string{token}, true, "", reason.NotCanonical},
		{all, "metadata.name=x,metadata.namespace=n1,metadata.namespace=n2", nil, true, "n1/x", ""},
		{all, "metadata.name=x,metadata.namespace=NS", nil, true, "", ""},
		{all, "metadata.name=x,metadata.namespace=", nil, true, "", ""},
		{all, "metadata.name=x,metadata.namespace!=ns", nil, true, "", ""},

		// A namespace as the scope of one page.
		{all, "metadata.namespace=ns", nil, true, "", ""},
		{all, "metadata.namespace=ns", []string{"resourceVersion=5"}, true, "", ""},
		{all, "metadata.namespace=ns", []string{"limit=5", "resourceVersion=0"}, true, "", ""},
		{all, "metadata.namespace=ns", []string{"limit=5"}, true, "", reason.NotCanonical},
		{all, "metadata.namespace=ns", []string{"limit=5", "resourceVersion=5"}, true, "", reason.NotCanonical},
		{all, "metadata.namespace=ns", []string{token}, true, "", reason.NotCanonical},
		{all, "metadata.namespace=NS", []string{"limit=5"}, true, "", reason.NotCanonical},
		{all, "metadata.namespace!=ns", []string{"limit=5"}, true, "", ""},
		{one, "metadata.namespace=ns", []string{"limit=5", token}, true, "", ""},
		{one, "metadata.namespace=other", []string{"limit=5"}, true, "", ""},

		// Resources without namespaces, and such as refuse the field.
		{nodes, "metadata.name=x", nil, false, "/x", ""},
		{nodes, "metadata.name=x", []string{"limit=1", "resourceVersion=5"}, false, "/x", reason.NotCanonical},
		{nodes, "metadata.name=x", []string{token}, false, "", ""},
		{nodes, "metadata.namespace=", nil, false, "", reason.NotCanonical},
		{nodes, "metadata.namespace!=ns", nil, false, "", reason.NotCanonical},
		{nodes, "metadata.namespace=ns", nil, false, "", reason.NotCanonical},
		{nodes, both, nil, false, "/x", reason.NotCanonical},
		{nodes, "spec.unschedulable=true", []string{"limit=5", token}, false, "", ""},
		{one, "metadata.name=x", nil, false, "", ""},
		{"/apis/certificates.k8s.io/v1beta1/podcertificaterequests", "metadata.namespace=ns", nil, true, "", reason.NotCanonical},
		{"/apis/certificates.k8s.io/v1beta1/podcertificaterequests", "metadata.name=x", nil, true, "", ""},
		{"/apis/example.com/v1/podcertificaterequests", "metadata.namespace=ns", nil, true, "", ""},
	} {
		t.Run(test.path+" "+test.selector+" "+strings.Join(test.options, " "), func(t *testing.T) {
			r, reason := parse(read(t, selecting(test.path, "", test.selector, test.options...)))
			if reason != "" {
				t.Fatalf("forwarded: %s", reason)
			}
			single := ""
			if namespace, name, ok := r.Single(test.namespaced); ok {
				single = namespace + "/" + name
			}
			if single != test.single {
				t.Errorf("single key %q, want %q", single, test.single)
			}
			expect.Same(t, test.reason, r.CheckSelectors(test.namespaced, LimitIgnored))
			checkScope(t, r, test.namespaced)
		})
	}
}

// checkScope: what the upstream reads for a list is what we say.
func checkScope(t *testing.T, r Request, namespaced bool) {
	t.Helper()
	predicate := storage.SelectionPredicate{Label: r.Labels, Field: r.Fields, Limit: r.Options.Limit, Continue: r.Options.Continue}
	namespace := r.Namespace
	if narrow, ok := predicate.MatchesSingleNamespace(); ok && namespace == "" && len(validation.IsDNS1123Label(narrow)) == 0 {
		namespace = narrow
	}
	name, single := predicate.MatchesSingle()
	single = single && name != "" && len(content.IsPathSegmentName(name)) == 0 && (!namespaced || namespace != "")
	if !namespaced && r.Namespace != "" {
		return // No such path upstream.
	}
	gotNamespace, gotName, ok := r.Single(namespaced)
	if ok != single || ok && (gotName != name || namespaced && gotNamespace != namespace) {
		t.Errorf("%+v: single %t, %q/%q; upstream %t, %q/%q", r, ok, gotNamespace, gotName, single, namespace, name)
	}
	if r.CheckSelectors(namespaced, LimitIgnored) != "" {
		return
	}
	if !namespaced && namespace != "" {
		t.Errorf("%+v: a resource without namespaces is selected by one", r)
	}
	decision := decide(r.Options)
	if !decision.Serve {
		return
	}
	if !single && namespace != r.Namespace && (decision.Limit > 0 || decision.Semantics == Continue) {
		t.Errorf("%+v: upstream reads namespace %q, and pages", r, namespace)
	}
	// The revision that the upstream reads depends on how it reads.
	exact, _, err := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      r.Options.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(r.Options.ResourceVersionMatch),
		Predicate:            predicate,
		Recursive:            !single,
	})
	if isExact := decision.Semantics == Exact || decision.Semantics == Continue; err != nil || isExact != (exact != 0) {
		t.Errorf("%+v: %s, upstream reads at %d; error %v", r, decision.Semantics, exact, err)
	}
}

func FuzzSelectors(f *testing.F) {
	f.Add("app in (a,b),!c,d>1", "metadata.name=x,metadata.namespace=ns", "limit=5&resourceVersion=7")
	f.Add("a=b", "metadata.namespace==ns,spec.nodeName!=", "limit=5")
	f.Add("", `a\,b=\=c,=,metadata.name=`, "continue=x")
	f.Add(" ", "=", "")
	for _, labelSelector := range []string{
		"", "app", "app==web,tier", "app!=web", "app notin (db,web)", "!app", "empty=", "empty in ()", "tier>0,tier<2", "app>web",
		"example.com/x=y", " app = web , tier ", ",", "a b", "a in", "a in (b", "a=b=c", "-a", "a=-", "/a", "\xff", "a=\xff",
		strings.Repeat("app,", 63) + "app", strings.Repeat("a,", 64) + "a", "a in (" + strings.Repeat("b,", 2048) + "b)",
	} {
		f.Add(labelSelector, "", "")
	}
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector, options string) {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/ns/pods"} {
			text := selecting(path, labelSelector, fieldSelector, options)
			raw, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
			if err != nil {
				return
			}
			checkParse(t, raw)
			r, reason := parse(raw)
			if reason != "" {
				continue
			}
			checkScope(t, r, true)
			checkScope(t, r, false)
		}
	})
}
