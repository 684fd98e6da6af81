package podmantest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// apiVersion is cut from the front of every path.
var apiVersion = regexp.MustCompile(`^/v[0-9.]+/libpod`)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", s.ping)
	mux.HandleFunc("GET /info", s.Info)
	mux.HandleFunc("GET /images/{ref}/json", s.image)
	mux.HandleFunc("GET /containers/json", s.list)
	mux.HandleFunc("POST /containers/create", s.create)
	mux.HandleFunc("GET /containers/{name}/json", s.with(s.inspect))
	mux.HandleFunc("GET /containers/{name}/exists", s.with(noContent))
	mux.HandleFunc("POST /containers/{name}/start", s.with(s.start))
	mux.HandleFunc("POST /containers/{name}/pause", s.with(s.pause))
	mux.HandleFunc("POST /containers/{name}/unpause", s.with(s.start))
	mux.HandleFunc("POST /containers/{name}/exec", s.with(s.execCreate))
	mux.HandleFunc("DELETE /containers/{name}", s.with(s.remove))
	mux.HandleFunc("POST /exec/{id}/start", s.execStart)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := s.intercept(r); answer != nil {
			answer(w, r)
			return
		}
		r.URL.Path = apiVersion.ReplaceAllString(r.URL.Path, "")
		r.URL.RawPath = apiVersion.ReplaceAllString(r.URL.RawPath, "")
		mux.ServeHTTP(w, r)
	})
}

type withContainer func(http.ResponseWriter, *http.Request, *Container)

// with finds the container that the path names, and holds the server's lock while op runs.
func (s *Server) with(op withContainer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.containers[r.PathValue("name")]
		if c == nil {
			Fails(http.StatusNotFound, "no such container")(w, r)
			return
		}
		op(w, r, c)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func noContent(w http.ResponseWriter, _ *http.Request, _ *Container) {
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) ping(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Libpod-API-Version", "5.0.0")
	_, _ = w.Write([]byte("OK"))
}

// Info is the answer to GET /info.
func (s *Server) Info(w http.ResponseWriter, _ *http.Request) {
	answer(w, 200, map[string]any{
		"host": map[string]any{
			"cgroupVersion": "v2", "kernel": "6.1", "security": map[string]any{"rootless": false},
			"ociRuntime": map[string]any{"name": "fake", "version": "fake version 1.0\ncommit: none"},
		},
		"version": map[string]any{"Version": "5.0.0"},
	})
}

func (s *Server) image(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.images[r.PathValue("ref")] {
		Fails(http.StatusNotFound, "image not known")(w, r)
		return
	}
	answer(w, 200, map[string]any{"Id": "abc", "RepoTags": []string{r.PathValue("ref")}, "Size": 1})
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]any{}
	for _, c := range s.containers {
		out = append(out, map[string]any{"Id": c.Name, "State": c.State, "Labels": c.Labels, "Created": "2026-01-02T03:04:05Z"})
	}
	answer(w, 200, out)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	var spec struct {
		Name   string
		Image  string
		Labels map[string]string
		Mounts []Mount
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || json.Unmarshal(body, &spec) != nil {
		Fails(http.StatusBadRequest, "unreadable spec")(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[spec.Name] != nil {
		Fails(http.StatusInternalServerError, "the container name "+spec.Name+" is already in use")(w, r)
		return
	}
	s.containers[spec.Name] = &Container{Name: spec.Name, Spec: body, Labels: spec.Labels, State: "created", Mounts: spec.Mounts}
	answer(w, 201, map[string]any{"Id": spec.Name})
}

func (s *Server) start(w http.ResponseWriter, _ *http.Request, c *Container) {
	c.State = "running"
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) pause(w http.ResponseWriter, _ *http.Request, c *Container) {
	c.State = "paused"
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) remove(w http.ResponseWriter, _ *http.Request, c *Container) {
	if c.agent != nil {
		c.agent.End()
	}
	delete(s.containers, c.Name)
	answer(w, 200, []map[string]any{{"Id": c.Name}})
}

// inspect describes a container as its spec requested it.
func (s *Server) inspect(w http.ResponseWriter, _ *http.Request, c *Container) {
	mounts := []map[string]any{}
	for _, m := range c.Mounts {
		if m.Type == "bind" {
			mounts = append(mounts, map[string]any{
				"Type": "bind", "Source": m.Source, "Destination": m.Destination,
				"Options": m.Options, "RW": m.Destination == "/workspace",
			})
		}
	}
	var asked struct {
		CapAdd     []string `json:"cap_add"`
		IDMappings struct {
			UIDMap []struct {
				ContainerID int `json:"container_id"`
				HostID      int `json:"host_id"`
				Size        int `json:"size"`
			}
		} `json:"idmappings"`
	}
	_ = json.Unmarshal(c.Spec, &asked)
	idMap := []string{}
	for _, m := range asked.IDMappings.UIDMap {
		idMap = append(idMap, fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size))
	}
	answer(w, 200, map[string]any{
		"Id": c.Name, "ImageName": "image", "Created": time.Now().Format(time.RFC3339),
		"State":        map[string]any{"Status": c.State, "Running": c.State == "running", "Paused": c.State == "paused"},
		"Config":       map[string]any{"Labels": c.Labels, "User": "0:0"},
		"Mounts":       mounts,
		"BoundingCaps": asked.CapAdd,
		"HostConfig": map[string]any{
			"NetworkMode": "none", "ReadonlyRootfs": true, "SecurityOpt": []string{"no-new-privileges"},
			"PidMode": "private", "IpcMode": "private", "UTSMode": "private", "UsernsMode": "private",
			"IDMappings": map[string]any{"UidMap": idMap, "GidMap": idMap}, "Tmpfs": map[string]string{"/tmp": "", "/run": "", "/dev/shm": "", "/run/secrets": "", "/var/home/wisbox": ""},
		},
	})
}
