package analyze

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxDepth is the largest number of objects, lists and strings, in all, that may be wrapped around an event.
const maxDepth = 8

// eventsIn returns the events in a text, in any order. Exporters of logs wrap an event in objects, in lists, or in a string
// that holds JSON. A text without { and [, such as a time, may stand before the JSON, and more JSON values may follow. depth is
// the number of objects, lists and strings around the text: 0 for a line.
func eventsIn(text []byte, depth int) []*auditEvent {
	start := bytes.IndexAny(text, "{[")
	if start < 0 || depth > maxDepth || !mayHaveEvent(text) {
		return nil
	}
	// Nearly every line is one event and nothing else. The decoder below would read it twice.
	if e := parseEvent(text[start:]); e != nil {
		return []*auditEvent{e}
	}
	var events []*auditEvent
	decoder := json.NewDecoder(bytes.NewReader(text[start:]))
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil { // the end, or something that is not JSON
			return events
		}
		events = append(events, eventsInValue(value, depth)...)
	}
}

// eventsInValue returns the events in a JSON value, like [eventsIn]. json.Unmarshal returns no errors here, since the value is
// JSON.
func eventsInValue(value json.RawMessage, depth int) []*auditEvent {
	if depth > maxDepth || !mayHaveEvent(value) {
		return nil
	}
	var elements []json.RawMessage
	switch value[0] {
	case '{':
		if e := parseEvent(value); e != nil {
			return []*auditEvent{e}
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(value, &members)
		elements = slices.Collect(maps.Values(members))
	case '[':
		_ = json.Unmarshal(value, &elements)
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		return eventsIn([]byte(text), depth+1)
	}
	var events []*auditEvent
	for _, element := range elements {
		events = append(events, eventsInValue(element, depth+1)...)
	}
	return events
}

// parseEvent parses a JSON value as an event. It returns nil if the value is something else.
func parseEvent(value []byte) *auditEvent {
	var e auditEvent
	err := json.Unmarshal(value, &e)
	if err != nil || !e.isEvent() {
		return nil
	}
	return &e
}

// mayHaveEvent reports, without parsing a text, whether it can have an event: each event names its API group.
func mayHaveEvent(text []byte) bool { return bytes.Contains(text, []byte(auditv1.GroupName)) }
