package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/expect"
)

// TestExpiredWatchesAreNoticed: a forwarded watch that kube-apiserver ends with a 410, however it
// says so.
func TestExpiredWatchesAreNoticed(t *testing.T) {
	encode := func(e runtime.Encoder, kind watch.EventType, o runtime.Object) string {
		var object, event strings.Builder
		expect.NoError(t, e.Encode(o, &object))
		expect.NoError(t, e.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: []byte(object.String())}}, &event))
		return event.String()
	}
	gone, other := errors.NewResourceExpired("too old resource version: 6 (8)").Status(), errors.NewInternalError(http.ErrBodyNotAllowed).Status()
	text := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	binary := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	for name, tt := range map[string]struct {
		code   int
		events []string
		want   bool
	}{
		"the code":             {code: http.StatusGone, want: true},
		"an event in JSON":     {code: http.StatusOK, events: []string{`{"type":"BOOKMARK"}`, encode(text, watch.Error, &gone)}, want: true},
		"an event in protobuf": {code: http.StatusOK, events: []string{encode(binary, watch.Error, &gone)}, want: true},
		"another code":         {code: http.StatusForbidden, events: []string{`{"type":"BOOKMARK"}`}},
		"another error":        {code: http.StatusOK, events: []string{encode(text, watch.Error, &other), encode(binary, watch.Error, &other)}},
		"an object that says as much": {
			code:   http.StatusOK,
			events: []string{`{"type":"ADDED","object":{"a":"ERROR Expired` + strings.Repeat(" ", maxErrorEvent) + `"}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := httptest.NewRecorder()
			w := &forwardedWatch{ResponseWriter: got}
			w.WriteHeader(tt.code)
			for _, e := range tt.events {
				_, err := w.Write([]byte(e))
				expect.NoError(t, err)
			}
			if w.expired != tt.want || got.Code != tt.code || got.Body.String() != strings.Join(tt.events, "") {
				t.Errorf("expired is %v, want %v; the client got %d %q", w.expired, tt.want, got.Code, got.Body)
			}
		})
	}
}
