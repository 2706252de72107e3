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
	huge      = "9223372036854775808" // the largest int64 and one more
)

// The rows of the table, with the upstream's own tokens.
var (
	versions = []string{"", "0", "5000", "00", "-1", "x", huge}
	matches  = []string{"", "NotOlderThan", "Exact", "Bogus"}
)

// TestDecideTable: every combination of what can be said.
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

// checkWithUpstream: a list is served if the API server's own two validations, that of its handlers (422) and that
// of its storage (400), take its options and they are written plainly; and then of the state that the storage reads.
// Where limits are honoured at resourceVersion=0, only how much is written differs.
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
	revision, plain := parseDecimal(o.ResourceVersion)
	tokenRevision, _, written := DecodeContinue(o.Continue) // see checkToken
	want := Decision{Serve: true, Revision: uint64(exact), Limit: o.Limit}
	switch {
	case refused, o.ResourceVersion != "" && (!plain || o.Continue != ""), o.Continue != "" && !written:
		want = forward(reason.NotCanonical)
	case o.ResourceVersion == "" && tokenRevision <= 0:
		want = forward(reason.Consistent)
	case err != nil:
		want = forward(reason.NotCanonical)
	case o.Continue != "":
		want.Semantics, want.Start = Continue, strings.TrimPrefix(key, "/pods/")
	case exact != 0:
		want.Semantics = Exact
	case revision == 0:
		want.Semantics, want.Limit = Any, 0
	default:
		want.Semantics, want.Revision = NotOlderThan, revision
	}
	expect.Same(t, want, decideList(o, LimitIgnored, ConsistentNever))
	if want.Semantics == Any {
		want.Limit = o.Limit
	}
	expect.Same(t, want, decideList(o, LimitHonoured, ConsistentNever))
}
