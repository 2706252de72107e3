package differential

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// TestDifferAsAges: two Tables may differ in ages, by as long as it took to ask for both, and in nothing else.
func TestDifferAsAges(t *testing.T) {
	table := func(cells, more string) string {
		return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[{"cells":[` + cells + `],"object":{` + more + `}}]}`
	}
	page := func(start string) string {
		text := token{"meta.k8s.io/v1", 7, start}.encode()
		return strings.Replace(table(`"a",1,"5s"`, ""), `"7"`, `"7","continue":"`+text+`"`, 1)
	}
	for name, test := range map[string]struct {
		proxy, direct string
		took          time.Duration
		want          bool
	}{
		"the same":                   {table(`"a","5s"`, ""), table(`"a","5s"`, ""), 0, true},
		"a second, at once":          {table(`"a","5s"`, ""), table(`"a","6s"`, ""), time.Millisecond, true},
		"longer than it took":        {table(`"a","5s"`, ""), table(`"a","7s"`, ""), time.Second, false},
		"as long as it took":         {table(`"a","58s"`, ""), table(`"a","2m4s"`, ""), 66 * time.Second, true},
		"a minute, of no seconds":    {table(`"a","9m59s"`, ""), table(`"a","10m"`, ""), 2 * time.Second, true},
		"minutes longer":             {table(`"a","10m"`, ""), table(`"a","12m"`, ""), time.Minute, false},
		"hours longer":               {table(`"a","2d3h"`, ""), table(`"a","2d5h"`, ""), time.Minute, false},
		"one of two":                 {table(`"a","5s","5s"`, ""), table(`"a","6s","8s"`, ""), time.Second, false},
		"another cell":               {table(`"a","5s"`, ""), table(`"b","6s"`, ""), time.Minute, false},
		"one age more":               {table(`"a","5s"`, ""), table(`"5s","5s"`, ""), time.Minute, false},
		"not an age":                 {table(`"a","5 s"`, ""), table(`"a","6 s"`, ""), time.Minute, false},
		"in the object":              {table(`"a","5s"`, `"x":"5s"`), table(`"a","5s"`, `"x":"6s"`), time.Minute, false},
		"the token's form, too":      {page("/a/b"), strings.Replace(page("a/b"), "5s", "6s", 1), time.Second, true},
		"another token":              {page("/a/b"), strings.Replace(page("a/c"), "5s", "6s", 1), time.Second, false},
		"a list that looks like one": {`{"kind":"List","cells":["5s"]}`, `{"kind":"List","cells":["6s"]}`, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Comparator{report: NewReport()}
			answer := func(body string) Answer { return Answer{Status: http.StatusOK, Body: []byte(body)} }
			got := c.differAsAges(t.Context(), Question{Clocked: true}, pair{proxy: answer(test.proxy), direct: answer(test.direct), took: test.took})
			if got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestMayBeOne: whatever the age of an object, and however it is written, two of its ages may be one object's if
// there is time between them, and not if one is much older.
func TestMayBeOne(t *testing.T) {
	for old := time.Duration(0); old < 20*365*24*time.Hour; old += old/50 + 777*time.Millisecond {
		for _, later := range []time.Duration{0, time.Millisecond, time.Second, 3 * time.Second, time.Minute} {
			a, b := duration.HumanDuration(old), duration.HumanDuration(old+later)
			if !mayBeOne(a, b, later) || !mayBeOne(b, a, later) {
				t.Errorf("%s and %s, %v apart, are taken for ages of two", a, b, later)
			}
		}
		if a, b := duration.HumanDuration(old), duration.HumanDuration(3*old+time.Minute); mayBeOne(a, b, time.Second) {
			t.Errorf("%s and %s are taken for one within a second", a, b)
		}
	}
}
