package policy

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	asMetadata   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// TestAccept: what has to be answered beside the combinations below, and what must not be.
func TestAccept(t *testing.T) {
	const forwarded, unclear = reason.Representation, reason.NotCanonical
	for name, test := range map[string]struct {
		accept          []string
		builtin, custom reason.Reason // the empty one: it is answered
	}{
		"absent":           {nil, "", ""},
		"empty":            {[]string{""}, "", ""},
		"other order":      {[]string{"application/json;v=v1;q=0.3;as=PartialObjectMetadataList;g=meta.k8s.io"}, "", ""},
		"spaces":           {[]string{" application/json ; v = v1 ; as = PartialObjectMetadataList ; g = meta.k8s.io "}, "", ""},
		"pretty metadata":  {[]string{"application/json;pretty=1" + asMetadata}, "", ""},
		"quality 0":        {[]string{"application/json;q=0"}, "", ""},
		"bare parameter":   {[]string{"application/json;foo"}, "", ""},
		"unparsable, JSON": {[]string{"application, application/json"}, "", ""},
		"twelve types":     {[]string{strings.Repeat("application/json,", 11) + "text/html"}, "", ""},
		"a star":           {[]string{"*"}, forwarded, ""}, // the API server's router refuses it (test/differential)
		"protobuf only":    {[]string{protobufType}, "", forwarded},
		"protobuf, yaml":   {[]string{protobufType + ",application/yaml"}, "", forwarded},
		"kubectl get":      {[]string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}, forwarded, forwarded},
		"charset":          {[]string{"application/json;charset=utf-8"}, forwarded, forwarded},
		"two lines":        {[]string{"application/json", "application/json"}, unclear, unclear},
		"too many types":   {[]string{strings.Repeat("application/json,", 12) + "text/html"}, unclear, unclear},
	} {
		accept := parseAccept(test.accept, false)
		_, builtin := accept.Representation(false)
		_, custom := accept.Representation(true)
		if builtin != test.builtin || custom != test.custom {
			t.Errorf("%s: %q and %q, want %q and %q", name, builtin, custom, test.builtin, test.custom)
		}
		checkAccept(t, test.accept, false)
	}
	for _, custom := range []bool{false, true} { // what was never read never answers
		if representation, why := (Accept{}).Representation(custom); representation != "" || why != forwarded || (&Request{Pretty: true}).Indented(custom) {
			t.Errorf("custom %t: nothing accepts %q, %q", custom, representation, why)
		}
	}
}

// restrictions are those of the endpoint of a custom resource, or of a built-in one.
func restrictions(types []runtime.SerializerInfo, custom bool) *handlers.RequestScope {
	scope := &handlers.RequestScope{MetaGroupVersion: metav1.SchemeGroupVersion, TableConvertor: rest.NewDefaultTableConvertor(schema.GroupResource{})}
	if custom { // has no protobuf
		scope.StandardSerializers = slices.DeleteFunc(slices.Clone(types), func(i runtime.SerializerInfo) bool { return i.MediaType == protobufType })
	}
	return scope
}

// upstream is an API server with or without the feature CBORServingAndStorage.
type upstream struct {
	types  []runtime.SerializerInfo
	routes *restful.Container
}

func newUpstream(cbor bool) upstream {
	// Those of the built-in resources, of custom ones and of lists of metadata are all alike.
	types := slices.Clone(scheme.Codecs.SupportedMediaTypes())
	if cbor {
		types = append(types, runtime.SerializerInfo{
			MediaType: "application/cbor", MediaTypeType: "application", MediaTypeSubType: "cbor", StreamSerializer: &runtime.StreamSerializerInfo{},
		})
	}
	var produced []string
	for _, info := range types {
		produced = append(produced, info.MediaType)
		if info.StreamSerializer != nil {
			produced = append(produced, info.MediaType+";stream=watch")
		}
	}
	service := new(restful.WebService).Path("/api/v1").Consumes("*/*")
	service.Route(service.GET("/pods").Produces(produced...).To(func(*restful.Request, *restful.Response) {}))
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.Add(service)
	return upstream{types: types, routes: container}
}

// routed asks the router of the built-in resources.
func (u upstream) routed(accept string) bool {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	u.routes.Dispatch(w, r)
	return w.Code == http.StatusOK
}

// upstreams are the API servers that our answer has to be right for.
var upstreams = []upstream{newUpstream(false), newUpstream(true)}

// checkAccept: the API server writes the representation that we say, exactly. It returns whether we say one, for
// a built-in resource and for a custom one.
func checkAccept(t *testing.T, accept []string, watch bool) (builtin, custom bool) {
	t.Helper()
	request := &Request{Accept: parseAccept(accept, watch)}
	return checkAcceptOf(t, accept, request, watch, false), checkAcceptOf(t, accept, request, watch, true)
}

// checkAcceptOf is checkAccept for one kind of resource.
func checkAcceptOf(t *testing.T, accept []string, request *Request, watch, custom bool) (answered bool) {
	t.Helper()
	representation, why := request.Accept.Representation(custom)
	if why != "" {
		if representation != "" || !slices.Contains(reason.Forwarding(), why) {
			t.Errorf("Accept %q, custom %t: %q, %q", accept, custom, representation, why)
		}
		return false
	}
	wantType := "application/json"
	if representation.IsProtobuf() {
		wantType = protobufType
	}
	var convert schema.GroupVersionKind
	if representation == media.MetadataJSON || representation == media.MetadataProtobuf {
		convert = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
		if watch {
			convert.Kind = "PartialObjectMetadata"
		}
	}
	header := strings.Join(accept, "")
	for _, server := range upstreams {
		if !custom && !server.routed(header) {
			t.Errorf("Accept %q: %s, the upstream's router says not acceptable", header, representation)
		}
		got, ok := negotiation.NegotiateMediaTypeOptions(header, server.types, restrictions(server.types, custom))
		switch {
		case !ok:
			t.Errorf("Accept %q, custom %t: %s, the upstream says not acceptable", header, custom, representation)
		case !watch && request.Indented(custom) != (got.Pretty && got.Accepted.PrettySerializer != nil):
			t.Errorf("Accept %q, custom %t: indented %t, the upstream says %+v", header, custom, request.Indented(custom), got)
		case got.Accepted.MediaType != wantType || got.Stream != "" && !watch || got.UseServerVersion != "" || got.Export ||
			got.Profile != "" || len(got.Unrecognized) > 0 || *cmp.Or(got.Convert, &schema.GroupVersionKind{}) != convert:
			t.Errorf("Accept %q, custom %t, watch %t: %s, the upstream says %+v", header, custom, watch, representation, got)
		}
	}
	return true
}

// TestAcceptCombinations asks the API server's own code about every header of up to three of these clauses. What
// has only clauses that are known to mean something else than a Table is answered; but custom resources have no
// protobuf.
func TestAcceptCombinations(t *testing.T) {
	type header struct {
		text            string
		known, protobuf bool // all clauses are
	}
	for _, watch := range []bool{false, true} {
		metadata, other, most := asMetadata, strings.Replace(asMetadata, "List", "", 1), 3
		if watch {
			metadata, other, most = other, metadata, 2
		}
		var clauses []header
		add := func(known, protobuf bool, texts ...string) {
			for _, text := range texts {
				clauses = append(clauses, header{text, known, protobuf})
			}
		}
		add(true, true, protobufType, protobufType+";q=0.9", protobufType+";pretty=1")
		add(true, false, "application/json", "application/json;q=0.5", "application/json;pretty=1", "application/json"+metadata,
			protobufType+metadata, "*/*;q=0.2")
		add(watch, true, protobufType+";stream=watch")
		add(watch, false, "application/json;stream=watch")
		add(false, false, "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json"+other, "application/json"+metadata+"beta1",
			protobufType+";as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/yaml;q=0.1"+metadata, "application/cbor",
			"application/*", "*", "text/html", "nonsense", "application/json;stream=other")
		headers := []header{{"", true, true}}
		for range most {
			var longer []header
			for _, h := range headers {
				for _, c := range clauses {
					longer = append(longer, header{strings.TrimPrefix(h.text+","+c.text, ","), h.known && c.known, h.protobuf && c.protobuf})
				}
			}
			headers = longer
			for _, h := range headers {
				if builtin, custom := checkAccept(t, []string{h.text}, watch); h.known && (!builtin || custom == h.protobuf) {
					t.Errorf("Accept %q, watch %t: answered %t, custom resources %t", h.text, watch, builtin, custom)
				}
			}
		}
	}
}

// FuzzAccept: whatever a header says, what listproxy would answer is what the API server's own code would write.
func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"", "*", "*/*", "application/*;q=0.5, application/json;q=nan", protobufType + ",application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json", protobufType + asMetadata + ",application/json" + asMetadata,
		"application/json; charset=utf-8, text/html;q=0", "application/json;q=0.1,application/yaml;q=0.2,*/*;q=0.3", "application / json",
		"application/cbor;q=0.1,*", "\tapplication/json", "*/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io,application/json",
		"application/json;pretty=1" + asMetadata, "application/json;sv=v1", "application/json;export=1", "application/json;profile=local",
		"application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields", "application/json;pretty=0", "Application/JSON",
	} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		checkAccept(t, []string{accept}, false)
		checkAccept(t, []string{accept}, true)
	})
}

// TestAcceptsGzip: the token must be there as it is, on the first line.
func TestAcceptsGzip(t *testing.T) {
	for want, headers := range map[bool][]string{
		true:  {"gzip", " gzip ", "deflate, gzip", "gzip,deflate", "deflate,\tgzip, *"},
		false: {"", "gzip;q=1", "gzip;q=0", "GZIP", "*", "identity", "x-gzip", "br\r\nAccept-Encoding: gzip"},
	} {
		for _, header := range headers {
			got, why := parse(read(t, get("/api/v1/pods", alice, "Accept-Encoding: "+header+"\r\n")))
			if got.Gzip != want || why != "" {
				t.Errorf("%q: %t, %q", header, got.Gzip, why)
			}
		}
	}
}
