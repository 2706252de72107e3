package policy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

// TestForecastOfWatches: newestAsAny is about lists. A watch of the newest state by the same caller
// is forecast as what it is.
func TestForecastOfWatches(t *testing.T) {
	c, err := ParseConfig("p", []byte("apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"+
		"resources: [{group: '', resource: pods, newestAsAny: [{user: jane}]}]\n"))
	expect.NoError(t, err)
	c = c.With(Switches{Watches: true})
	for target, asAny := range map[string]bool{"/api/v1/pods": true, "/api/v1/pods?watch=true": false} {
		list, why := parse(read(t, get(target, alice)))
		if why != "" {
			t.Fatal(why)
		}
		f := c.Forecast(list, "", false, &user.DefaultInfo{Name: "jane"})
		if f.AsAny != asAny || f.Decision.Initial != list.Watch || f.Why != "" {
			t.Errorf("%s: %+v", target, f)
		}
	}
}

// TestOutlineOfWhatIsForwarded: Parse's reason stands, except that a watch is forwarded as one where
// watches are not answered.
func TestOutlineOfWhatIsForwarded(t *testing.T) {
	const table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n"
	for target, want := range map[string][2]reason.Reason{ // without the switch, and with it
		"/api/v1/pods":            {reason.Representation, reason.Representation},
		"/api/v1/pods?watch=true": {reason.Watch, reason.Representation},
	} {
		list, why := parse(read(t, get(target, alice, table)))
		for i, on := range []bool{false, true} {
			o := DefaultConfig().With(Switches{Watches: on}).Outline(list, why)
			if o.Reason != want[i] || o.Serve || o.Newest {
				t.Errorf("%s, watches answered: %t: %+v, want %s", target, on, o.Decision, want[i])
			}
		}
	}
}
