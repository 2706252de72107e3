package policy

import (
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
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	asMetadata   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// acceptWant is what is to come of an Accept header for one kind of resource.
type acceptWant struct {
	representation media.Representation
	reason         reason.Reason
	indented       bool
}

func TestAccept(t *testing.T) {
	var (
		plain            = acceptWant{representation: media.JSON}
		pretty           = acceptWant{representation: media.JSON, indented: true}
		protobuf         = acceptWant{representation: media.Protobuf}
		metadata         = acceptWant{representation: media.MetadataJSON}
		prettyMetadata   = acceptWant{representation: media.MetadataJSON, indented: true}
		metadataProtobuf = acceptWant{representation: media.MetadataProtobuf}
		forwarded        = acceptWant{reason: reason.Representation}
		notCanonical     = acceptWant{reason: reason.NotCanonical}
	)
	for name, test := range map[string]struct {
		accept          []string
		builtin, custom acceptWant
	}{
		// What has to be answered.
		"absent":             {nil, plain, plain},
		"empty":              {[]string{""}, plain, plain},
		"any":                {[]string{"*/*"}, plain, plain},
		"dynamic client":     {[]string{"application/json"}, plain, plain},
		"typed client":       {[]string{"application/vnd.kubernetes.protobuf,application/json"}, protobuf, plain},
		"protobuf only":      {[]string{"application/vnd.kubernetes.protobuf"}, protobuf, forwarded},
		"controller-runtime": {[]string{"application/vnd.kubernetes.protobuf;q=1.0,application/json;q=0.9"}, protobuf, plain},
		"a typed client's old header": {
			[]string{"application/vnd.kubernetes.protobuf, */*"}, protobuf, plain,
		},
		"metadata client": {
			[]string{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
				"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"},
			metadataProtobuf, metadataProtobuf,
		},
		"metadata in JSON":  {[]string{"application/json" + asMetadata}, metadata, metadata},
		"metadata in any":   {[]string{"*/*" + asMetadata}, metadata, metadata},
		"other order":       {[]string{"application/json;v=v1;q=0.3;as=PartialObjectMetadataList;g=meta.k8s.io"}, metadata, metadata},
		"spaces":            {[]string{" application/json ; v = v1 ; as = PartialObjectMetadataList ; g = meta.k8s.io "}, metadata, metadata},
		"JSON, any":         {[]string{"application/json, */*"}, plain, plain},
		"JSON with quality": {[]string{"application/json;q=0.8"}, plain, plain},
		"quality 0":         {[]string{"application/json;q=0"}, plain, plain},
		"bare parameter":    {[]string{"application/json;foo"}, plain, plain},
		"JSON over protobuf": {
			[]string{"application/vnd.kubernetes.protobuf;q=0.5,application/json"}, plain, plain,
		},
		"protobuf over JSON": {
			[]string{"application/json;q=0.5,application/vnd.kubernetes.protobuf"}, protobuf, plain,
		},
		"unparsable, JSON": {[]string{"application, application/json"}, plain, plain},
		"protobuf, then metadata": {
			[]string{protobufType + ",application/json" + asMetadata}, protobuf, metadata,
		},

		// What a client of custom resources gets in the end is what counts.
		"protobuf, then yaml":   {[]string{protobufType + ",application/yaml"}, protobuf, forwarded},
		"protobuf, then pretty": {[]string{protobufType + ",application/json;pretty=1"}, protobuf, pretty},
		"protobuf, pretty":      {[]string{protobufType + ";pretty=1,application/json"}, protobuf, plain},
		"plain, then pretty":    {[]string{"application/json,application/json;pretty=1"}, plain, plain},
		"pretty, then plain":    {[]string{"application/json;q=0.5,application/json;pretty=1"}, pretty, pretty},

		"a star":          {[]string{"*"}, forwarded, plain}, // the API server's router refuses it (test/differential)
		"kubectl get":     {[]string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}, forwarded, forwarded},
		"charset":         {[]string{"application/json;charset=utf-8"}, forwarded, forwarded},
		"pretty metadata": {[]string{"application/json;pretty=1" + asMetadata}, prettyMetadata, prettyMetadata},
		"two lines":       {[]string{"application/json", "application/json"}, notCanonical, notCanonical},
		"twelve types":    {[]string{strings.Repeat("application/json,", 11) + "text/html"}, plain, plain},
		"too many types": {
			[]string{strings.Repeat("application/json,", 12) + "text/html"}, notCanonical, notCanonical,
		},
	} {
		t.Run(name, func(t *testing.T) {
			accept := parseAccept(test.accept, false)
			for custom, want := range map[bool]acceptWant{false: test.builtin, true: test.custom} {
				representation, reason := accept.Representation(custom)
				indented := Request{Accept: accept}.Indented(custom)
				if got := (acceptWant{representation, reason, indented}); got != want {
					t.Errorf("custom %t: %+v, want %+v", custom, got, want)
				}
			}
			checkAccept(t, test.accept)
		})
	}
}

// TestAcceptNothing: the zero value never answers.
func TestAcceptNothing(t *testing.T) {
	for _, custom := range []bool{false, true} {
		if representation, why := (Accept{}).Representation(custom); representation != "" || why != reason.Representation {
			t.Errorf("custom %t: %q, %q", custom, representation, why)
		}
		if (Request{Pretty: true}).Indented(custom) {
			t.Errorf("custom %t: nothing is indented", custom)
		}
	}
}

// restrictions are those of a resource's endpoint: RequestScope's.
type restrictions struct {
	custom bool
}

func (r restrictions) AllowsMediaTypeTransform(mainType, subType string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return !r.custom || subType != "vnd.kubernetes.protobuf"
	}
	if target.Group != "meta.k8s.io" || target.Version != "v1" && target.Version != "v1beta1" {
		return false
	}
	switch target.Kind {
	case "Table":
		return mainType == "application" && (subType == "json" || subType == "yaml")
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

func (restrictions) AllowsServerVersion(version string) bool { return version == "v1" }

func (restrictions) AllowsStreamSchema(stream string) bool { return stream == "watch" }

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

// checkAccept: the API server writes the representation that we say, exactly. It
// returns how many we say.
func checkAccept(t *testing.T, accept []string) (answered int) {
	t.Helper()
	header := ""
	if len(accept) > 0 {
		header = accept[0]
	}
	for _, custom := range []bool{false, true} {
		request := Request{Accept: parseAccept(accept, false)}
		representation, why := request.Accept.Representation(custom)
		if why != "" {
			if representation != "" || !slices.Contains(reason.Forwarding(), why) {
				t.Errorf("Accept %q, custom %t: %q, %q", accept, custom, representation, why)
			}
			continue
		}
		answered++
		want := negotiation.MediaTypeOptions{}
		wantType := "application/json"
		switch representation {
		case media.JSON:
		case media.Protobuf:
			wantType = protobufType
		case media.MetadataProtobuf:
			wantType = protobufType
			fallthrough
		case media.MetadataJSON:
			kind := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
			want.Convert = &schema.GroupVersionKind{Group: "meta.k8s.io", Version: kind.Version, Kind: kind.Kind}
		default:
			t.Fatalf("Accept %q, custom %t: representation %q", accept, custom, representation)
		}
		for _, server := range upstreams {
			if !custom && !server.routed(header) {
				t.Errorf("Accept %q: %s, the upstream's router says not acceptable", header, representation)
			}
			got, ok := negotiation.NegotiateMediaTypeOptions(header, server.types, restrictions{custom})
			switch {
			case !ok:
				t.Errorf("Accept %q, custom %t: %s, the upstream says not acceptable", header, custom, representation)
			case request.Indented(custom) != (got.Pretty && got.Accepted.PrettySerializer != nil):
				t.Errorf("Accept %q, custom %t: indented %t, the upstream says %+v", header, custom, request.Indented(custom), got)
			case got.Accepted.MediaType != wantType || got.Stream != "" || got.UseServerVersion != "" || got.Export ||
				got.Profile != "" || len(got.Unrecognized) > 0 ||
				(got.Convert == nil) != (want.Convert == nil) || got.Convert != nil && *got.Convert != *want.Convert:
				t.Errorf("Accept %q, custom %t: %s, the upstream says %+v", header, custom, representation, got)
			}
		}
	}
	return answered
}

// TestAcceptCombinations asks the API server's own code about every header of up to
// three of these clauses.
func TestAcceptCombinations(t *testing.T) {
	clauses := []string{
		"application/json", "application/json;q=0.5", "application/json;pretty=1", "application/json;stream=watch",
		"application/json" + asMetadata, "application/json;as=Table;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
		protobufType, protobufType + ";q=0.9", protobufType + ";pretty=1", protobufType + ";stream=watch", protobufType + asMetadata,
		protobufType + ";as=Table;g=meta.k8s.io;v=v1",
		"application/yaml", "application/yaml;q=0.1" + asMetadata, "application/cbor", "application/*", "*/*;q=0.2", "*", "text/html", "nonsense",
	}
	answered, headers := 0, []string{""}
	for range 3 {
		var longer []string
		for _, header := range headers {
			for _, clause := range clauses {
				longer = append(longer, strings.TrimPrefix(header+","+clause, ","))
			}
		}
		headers = longer
		for _, header := range headers {
			answered += checkAccept(t, []string{header})
		}
	}
	if answered < len(headers)/4 {
		t.Errorf("only %d of %d headers are answered", answered, 2*len(headers))
	}
}

func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"", "*", "*/*", "application/json", "application/*;q=0.5, application/json;q=nan",
		"application/vnd.kubernetes.protobuf,application/json", "application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;v=v1;as=PartialObjectMetadataList;g=meta.k8s.io",
		"application/json;pretty=1", "application/json; charset=utf-8, text/html;q=0",
		"application/json;q=0.1,application/yaml;q=0.2,*/*;q=0.3", "application/yaml", "application/yaml,application/json",
		"application/cbor", "application/json;q=0.9,application/cbor;q=1", "text/html,application/json", "application",
		"application/*", "application / json", "application/cbor;q=0.1,*", "application/yaml;q=0.1,application/*",
		"\tapplication/json", "*/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1,application/json", "application/json;charset=utf-8" + asMetadata,
		"application/json;pretty=1" + asMetadata, protobufType + asMetadata + ";pretty=1", "application/json;charset=utf-8",
		"application/json;stream=watch", "application/json;sv=v1", "application/json;export=1", "application/json;profile=local",
		"application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields",
		"application/vnd.kubernetes.protobuf;drop=metadata.managedFields,application/json;drop=metadata.managedFields",
		"*/*;pretty=1", "application/json;pretty=0", "application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1", "Application/JSON",
		"application/json,application/json;pretty=1",
	} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		checkAccept(t, []string{accept})
	})
}

func TestAcceptsGzip(t *testing.T) {
	for want, headers := range map[bool][]string{
		true:  {"gzip", " gzip ", "deflate, gzip", "gzip,deflate", "deflate,\tgzip, *"},
		false: {"", "gzip;q=1", "gzip;q=0", "GZIP", "*", "identity", "x-gzip"},
	} {
		for _, header := range headers {
			if got := acceptsGzip(header); got != want {
				t.Errorf("acceptsGzip(%q) = %t", header, got)
			}
		}
	}
}
