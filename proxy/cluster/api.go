package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// pageSize is the number of objects in a page of a list. The API server holds a page in its memory, and a
	// definition may have 1.5 MB.
	pageSize = 50
	// pageTimeout bounds the time for a page, and for any other answer that is not a watch.
	pageTimeout = time.Minute
)

// api reads from the upstream with listproxy's own credentials. It reads one object of a list or watch at a time, since
// a cluster can have hundreds of megabytes of definitions.
type api struct {
	client *http.Client
	base   *url.URL
}

// newAPI returns an api with the credentials of cfg. It follows no redirects, since they are for the upstream only.
func newAPI(cfg *rest.Config) (*api, error) {
	base, err := upstream.Base(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	return &api{client: client, base: base}, nil
}

// object has the fields that are read of objects of all resources.
type object struct {
	Metadata struct {
		Namespace       string    `json:"namespace"`
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
		Generation      int64     `json:"generation"`
		Labels          struct {
			Automanaged string `json:"kube-aggregator.kubernetes.io/automanaged"`
		} `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		// Of an APIService.
		Service *struct{} `json:"service"`
		// Of a CustomResourceDefinition.
		Scope    string              `json:"scope"`
		Versions []definitionVersion `json:"versions"`
		// Of a Lease.
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
	Status struct {
		// Of a CustomResourceDefinition.
		AcceptedNames json.RawMessage `json:"acceptedNames"`
		Conditions    []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		// Of a StorageVersion.
		CommonEncodingVersion string `json:"commonEncodingVersion"`
	} `json:"status"`
	// Of RBAC objects.
	Rules    []json.RawMessage `json:"rules"`
	Subjects []json.RawMessage `json:"subjects"`
	RoleRef  json.RawMessage   `json:"roleRef"`
}

// condition returns the status of the named condition, or "" if there is none.
func (o *object) condition(name string) string {
	for _, c := range o.Status.Conditions {
		if c.Type == name {
			return c.Status
		}
	}
	return ""
}

// get sends a GET, and returns the answer if it is a 200.
func (a *api) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	u := a.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, wire.ReadAnswerError(resp)
	}
	return resp, nil
}

// errNoList means that the answer is not an API server's.
var errNoList = errors.New("the answer is no list: it has no resourceVersion")

// read decodes a document into a value.
func (a *api) read(ctx context.Context, path string, timeout time.Duration, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := a.get(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(into)
}

// list calls take with each object of the newest state, and returns the state's revision.
func (a *api) list(ctx context.Context, path, labels string, take func(*object)) (revision string, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if labels != "" {
		query.Set("labelSelector", labels)
	}
	for {
		meta, err := a.page(ctx, path, query, take)
		if err != nil || meta.Continue == "" {
			return meta.ResourceVersion, err
		}
		query.Set("continue", meta.Continue)
	}
}

// page reads one page of a list.
func (a *api) page(ctx context.Context, path string, query url.Values, take func(*object)) (meta metav1.ListMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	resp, err := a.get(ctx, path, query)
	if err != nil {
		return meta, err
	}
	defer func() { _ = resp.Body.Close() }()
	return readPage(json.NewDecoder(resp.Body), take)
}

// readPage calls take with each item of a list, as it comes.
func readPage(in *json.Decoder, take func(*object)) (meta metav1.ListMeta, err error) {
	if _, err = in.Token(); err != nil { // {
		return meta, err
	}
	for in.More() {
		key, err := in.Token()
		switch {
		case err != nil:
		case key == "metadata":
			err = in.Decode(&meta)
		case key == "items":
			err = readItems(in, take)
		default:
			err = in.Decode(&json.RawMessage{})
		}
		if err != nil {
			return meta, err
		}
	}
	if _, err = in.Token(); err == nil && meta.ResourceVersion == "" { // }
		err = errNoList
	}
	return meta, err
}

// readItems calls take with each item.
func readItems(in *json.Decoder, take func(*object)) error {
	if begin, err := in.Token(); err != nil || begin == nil { // null, for no items
		return err
	}
	for in.More() {
		o := &object{}
		if err := in.Decode(o); err != nil {
			return err
		}
		take(o)
	}
	_, err := in.Token() // ]
	return err
}

// readEvent returns the next event of a watch. An event of the type ERROR is an error.
func readEvent(in *json.Decoder) (kind watch.EventType, o *object, err error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := in.Decode(&event); err != nil {
		return "", nil, err
	}
	if event.Type == watch.Error {
		var status metav1.Status
		err := json.Unmarshal(event.Object, &status)
		return "", nil, errors.Join(err, &wire.AnswerError{Code: int(status.Code), Message: status.Message})
	}
	o = &object{}
	return event.Type, o, json.Unmarshal(event.Object, o)
}
