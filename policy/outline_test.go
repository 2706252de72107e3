package policy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// TestForecastOfWatches: newestAsAny is about lists. A watch of the newest state by the same caller
// is forecast as what it is.
func TestForecastOfWatches(t *testing.T) {
	c, err := ParseConfig("p", []byte("apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"+
		"resources: [{group: '', resource: pods, newestAsAny: [{user: jane}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	c = c.With(Switches{Watches: true})
	for target, asAny := range map[string]bool{"/api/v1/pods": true, "/api/v1/pods?watch=true": false} {
		list, why := parse(read(t, get(target, alice)))
		if why != "" {
			t.Fatal(why)
		}
		f := c.Forecast(list, false, &user.DefaultInfo{Name: "jane"})
		if f.AsAny != asAny || f.Decision.Initial != list.Watch || f.Why != "" {
			t.Errorf("%s: %+v", target, f)
		}
	}
}
