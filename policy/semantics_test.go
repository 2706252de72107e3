package policy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

const (
	goodStart = "ns-1/pod-7\x00"
	tooLarge  = "9223372036854775808" // MaxInt64 + 1
)

// The values of resourceVersion and resourceVersionMatch that are combined.
var (
	versions = []string{"", "0", "5000", "00", "-1", "x", tooLarge}
	matches  = []string{"", "NotOlderThan", "Exact", "Bogus"}
)

// TestDecideTable: for every combination of options, decideList agrees with the API server's own code.
func TestDecideTable(t *testing.T) {
	for _, match := range matches {
		for _, version := range versions {
			for _, token := range []string{"", upstreamToken(t, goodStart, 4711), upstreamToken(t, goodStart, -1), "not a token"} {
				for _, limit := range []int64{0, 3} {
					o := ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit}
					t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) { checkWithUpstream(t, o) })
				}
			}
		}
	}
}

// checkWithUpstream requires that decideList serves a list exactly if the API server's two validations, that of its
// handlers (422) and that of its storage (400), accept the options, and the options have their canonical spelling. It
// must then have the revision that the storage reads. LimitHonoured only changes the limit at resourceVersion=0.
func checkWithUpstream(t *testing.T, o ListOptions) {
	t.Helper()
	refused := len(validation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Continue:             o.Continue,
		Limit:                o.Limit,
	}, true)) > 0
	exact, key, err := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Predicate:            storage.SelectionPredicate{Continue: o.Continue, Limit: o.Limit},
		Recursive:            true,
	})
	revision, canonical := parseDecimal(o.ResourceVersion)
	_, tokenRevision, validToken := DecodeContinue(o.Continue) // see checkToken
	want := Decision{Serve: true, Revision: uint64(exact), Limit: o.Limit}
	switch {
	case refused, o.ResourceVersion != "" && (!canonical || o.Continue != ""), o.Continue != "" && !validToken:
		want = forward(reason.NotCanonical)
	case o.ResourceVersion == "" && tokenRevision <= 0:
		want = forward(reason.Consistent)
	case err != nil:
		want = forward(reason.NotCanonical)
	case o.Continue != "":
		want.Semantics = Continue
		want.Start = strings.TrimPrefix(key, "/pods/")
	case exact != 0:
		want.Semantics = Exact
	case revision == 0:
		want.Semantics = Any
		want.Limit = 0
	default:
		want.Semantics = NotOlderThan
		want.Revision = revision
	}
	expect.Same(t, want, decideList(o, LimitIgnored, ConsistentNever))
	if want.Semantics == Any {
		want.Limit = o.Limit
	}
	expect.Same(t, want, decideList(o, LimitHonoured, ConsistentNever))
}
