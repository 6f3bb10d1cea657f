package dev.turnlog.probe;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import io.grpc.ClientInterceptor;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import turnlog.v1.Content.ContentPart;
import turnlog.v1.EventOuterClass.CausedBy;
import turnlog.v1.EventOuterClass.Event;
import turnlog.v1.EventServiceGrpc;
import turnlog.v1.EventServiceOuterClass.AppendEventRequest;
import turnlog.v1.EventServiceOuterClass.AppendEventResponse;
import turnlog.v1.EventServiceOuterClass.FollowEventsRequest;
import turnlog.v1.EventServiceOuterClass.FollowEventsResponse;
import turnlog.v1.EventServiceOuterClass.FollowUntil;
import turnlog.v1.EventServiceOuterClass.ListEventsRequest;
import turnlog.v1.ServerServiceGrpc;
import turnlog.v1.ServerServiceOuterClass.GetServerInfoRequest;
import turnlog.v1.SessionServiceGrpc;
import turnlog.v1.SessionServiceOuterClass.CreateSessionRequest;
import turnlog.v1.UserEvent.UserMessage;

/**
 * A client of Turnlog in Java, with the options that a channel has by default. One command for each thing that a test
 * asks of it: {@code probe COMMAND JSON}. It answers with one JSON object; where a call fails, with what the status says.
 */
public final class Probe {
  private static final class Asked {
    String address = "";
    String key = "";
    String deployment = "";
    String author = "";
    String session = "";
    String run = "";
    String text = "";
    int page_size;
    int cut;
    int follows;
    int parts;
    int labels;
    double seconds;
  }

  private record Read(List<Map<String, Object>> events, String end) {}

  private final Asked asked;
  private final ClientInterceptor bearer;
  private final ManagedChannel channel;
  private final SessionServiceGrpc.SessionServiceBlockingStub sessions;
  private final EventServiceGrpc.EventServiceBlockingStub events;

  private Probe(Asked asked) {
    this.asked = asked;
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + asked.key);
    bearer = MetadataUtils.newAttachHeadersInterceptor(headers);
    channel = builder().build();
    sessions = SessionServiceGrpc.newBlockingStub(channel);
    events = EventServiceGrpc.newBlockingStub(channel);
  }

  public static void main(String[] arguments) throws Exception {
    Probe probe = new Probe(new Gson().fromJson(arguments[1], Asked.class));
    Map<String, Object> answer;
    try {
      answer = probe.run(arguments[0]);
    } catch (StatusRuntimeException error) {
      answer = Map.of("error", failure(error));
    }
    Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    out.println(gson.toJson(answer));
    out.flush();
    // The program ends with its answer, whatever streams are open still.
    System.exit(0);
  }

  private Map<String, Object> run(String command) throws Exception {
    return switch (command) {
      case "turn" -> turn();
      case "list" -> list();
      case "follow" -> follow();
      case "crowd" -> crowd();
      case "refused" -> refused();
      case "idle" -> idle();
      default -> throw new IllegalArgumentException(command);
    };
  }

  private ManagedChannelBuilder<?> builder() {
    return ManagedChannelBuilder.forTarget(asked.address).usePlaintext().intercept(bearer);
  }

  /** Creates a Session and appends its first message. */
  private Map<String, Object> turn() {
    var made =
        sessions.createSession(
            CreateSessionRequest.newBuilder().setRequestId(fresh()).setAgentDeploymentId(asked.deployment).build());
    asked.session = made.getSession().getSessionId();
    var added = append(events, said(asked.text));
    return Map.of("session", asked.session, "run", added.getRunId(), "seq", added.getSeq());
  }

  private AppendEventResponse append(EventServiceGrpc.EventServiceBlockingStub stub, UserMessage message) {
    return stub.appendEvent(
        AppendEventRequest.newBuilder()
            .setRequestId(fresh())
            .setSessionId(asked.session)
            .setAuthoredBy(asked.author)
            .setCausedBy(CausedBy.newBuilder().setKind(CausedBy.Kind.KIND_API))
            .setUserMessage(message)
            .build());
  }

  /** Reads the whole log by pages. */
  private Map<String, Object> list() {
    List<Map<String, Object>> all = new ArrayList<>();
    int pages = 0;
    String token = "";
    do {
      var page =
          events.listEvents(
              ListEventsRequest.newBuilder()
                  .setSessionId(asked.session)
                  .setPageSize(asked.page_size)
                  .setPageToken(token)
                  .build());
      pages++;
      page.getEventsList().forEach(event -> all.add(told(event)));
      token = page.getNextPageToken();
    } while (!token.isEmpty());
    return Map.of("events", all, "pages", pages);
  }

  /** Reads from a cursor to the end of a turn. With `cut` it hangs up after so many events and resumes. */
  private Map<String, Object> follow() {
    List<Map<String, Object>> before = List.of();
    long after = 0;
    if (asked.cut > 0) {
      before = read(after, asked.cut).events();
      after = (long) before.get(before.size() - 1).get("seq");
    }
    Read rest = read(after, 0);
    return Map.of("before", before, "events", rest.events(), "end", rest.end());
  }

  private Read read(long after, int atMost) {
    var request =
        FollowEventsRequest.newBuilder()
            .setSessionId(asked.session)
            .setAfterSeq(after)
            .setUntil(
                FollowUntil.newBuilder().setBoundary(FollowUntil.Boundary.BOUNDARY_TURN).setRunId(asked.run))
            .build();
    List<Map<String, Object>> seen = new ArrayList<>();
    String end = "";
    var context = io.grpc.Context.current().withCancellation();
    var outside = context.attach();
    try {
      var frames = events.followEvents(request);
      while (frames.hasNext()) {
        var frame = frames.next();
        for (Event event : frame.getEvents().getEventsList()) {
          seen.add(told(event));
          if (seen.size() == atMost) {
            return new Read(seen, "");
          }
        }
        if (frame.hasEnd()) {
          end = frame.getEnd().getReason().name();
        }
      }
      return new Read(seen, end);
    } finally {
      context.detach(outside);
      context.cancel(null);
    }
  }

  /** Opens many follows on one channel, appends beside them, and waits until each has the message. */
  private Map<String, Object> crowd() throws Exception {
    List<Watch> caughtUp = new ArrayList<>();
    for (int number = 0; number < asked.follows; number++) {
      caughtUp.add(watch(channel));
    }
    for (Watch watch : caughtUp) {
      watch.until(FollowEventsResponse::hasCaughtUp);
    }
    var stub = events.withDeadlineAfter((long) (asked.seconds * 1000), TimeUnit.MILLISECONDS);
    var added = append(stub, said("to all"));
    for (Watch watch : caughtUp) {
      watch.until(
          frame -> frame.getEvents().getEventsList().stream().anyMatch(event -> event.getType().equals("user.message")));
    }
    return Map.of("seq", added.getSeq(), "arrived", caughtUp.size());
  }

  private Watch watch(ManagedChannel over) {
    Watch watch = new Watch();
    var request = FollowEventsRequest.newBuilder().setSessionId(asked.session).build();
    EventServiceGrpc.newStub(over).followEvents(request, watch);
    return watch;
  }

  /** A follow whose frames are waited for. */
  private static final class Watch implements ClientResponseObserver<FollowEventsRequest, FollowEventsResponse> {
    private final List<FollowEventsResponse> frames = new ArrayList<>();
    private Throwable ended;

    synchronized void until(Predicate<FollowEventsResponse> seen) throws Exception {
      while (frames.stream().noneMatch(seen)) {
        if (ended instanceof StatusRuntimeException error) {
          throw error;
        }
        wait();
      }
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<FollowEventsRequest> stream) {}

    @Override
    public synchronized void onNext(FollowEventsResponse frame) {
      frames.add(frame);
      notifyAll();
    }

    @Override
    public synchronized void onError(Throwable error) {
      ended = error;
      notifyAll();
    }

    @Override
    public void onCompleted() {
      onError(io.grpc.Status.UNKNOWN.withDescription("it ended").asRuntimeException());
    }
  }

  /** Sends a request with many faults. */
  private Map<String, Object> refused() {
    if (asked.labels > 0) {
      var request = CreateSessionRequest.newBuilder().setRequestId(fresh()).setAgentDeploymentId(asked.deployment);
      for (int number = 0; number < asked.labels; number++) {
        request.putLabels("ключ".repeat(250) + number, "value");
      }
      sessions.createSession(request.build());
    } else {
      var message = UserMessage.newBuilder();
      for (int number = 0; number < asked.parts; number++) {
        message.addParts(ContentPart.getDefaultInstance());
      }
      append(events, message.build());
    }
    return Map.of();
  }

  /** Keeps two channels alive by pings, one with a follow and one without any call, and tells whether they stayed up. */
  private Map<String, Object> idle() throws Exception {
    ManagedChannel busy = pinging();
    ManagedChannel bare = pinging();
    watch(busy).until(frame -> true);
    var server = ServerServiceGrpc.newBlockingStub(bare);
    server.getServerInfo(GetServerInfoRequest.getDefaultInstance());
    List<CompletableFuture<String>> changes = new ArrayList<>();
    for (ManagedChannel each : List.of(busy, bare)) {
      var changed = new CompletableFuture<String>();
      each.notifyWhenStateChanged(ConnectivityState.READY, () -> changed.complete(each.getState(false).name()));
      changes.add(changed.completeOnTimeout("", (long) (asked.seconds * 1000), TimeUnit.MILLISECONDS));
    }
    List<String> lost = new ArrayList<>();
    for (var change : changes) {
      if (!change.get().isEmpty()) {
        lost.add(change.get());
      }
    }
    server.getServerInfo(GetServerInfoRequest.getDefaultInstance());
    return Map.of("lost", lost);
  }

  private ManagedChannel pinging() {
    return builder()
        .keepAliveTime(10, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        .build();
  }

  /** An event as the tests compare it. What the contract calls unknown has no payload. */
  private static Map<String, Object> told(Event event) {
    Map<String, Object> shown = new LinkedHashMap<>();
    shown.put("seq", event.getSeq());
    shown.put("event_id", event.getEventId());
    shown.put("type", event.getType());
    var time = event.getCreateTime();
    shown.put("time", String.format(Locale.ROOT, "%d.%09d", time.getSeconds(), time.getNanos()));
    shown.put("payload", "");
    shown.put("ignorable", event.getIgnorable());
    var arm = event.getPayloadCase();
    if (arm != Event.PayloadCase.PAYLOAD_NOT_SET) {
      shown.put("payload", arm.name().toLowerCase(Locale.ROOT));
    }
    switch (arm) {
      case USER_MESSAGE -> shown.put("text", text(event.getUserMessage().getPartsList()));
      case AGENT_MESSAGE -> shown.put("text", text(event.getAgentMessage().getPartsList()));
      case AGENT_TOOL_USE -> shown.put("arguments", plain(event.getAgentToolUse().getArguments()));
      case MODEL_CALLED -> shown.put("input_tokens", Long.toString(event.getModelCalled().getUsage().getInputTokens()));
      case RUN_FAILED -> shown.put("error", event.getRunFailed().getError().getMessage());
      default -> {}
    }
    return shown;
  }

  private static String text(List<ContentPart> parts) {
    var whole = new StringBuilder();
    parts.forEach(part -> whole.append(part.getText()));
    return whole.toString();
  }

  private static UserMessage said(String text) {
    return UserMessage.newBuilder().addParts(ContentPart.newBuilder().setText(text)).build();
  }

  private static Map<String, Object> plain(Struct struct) {
    Map<String, Object> whole = new LinkedHashMap<>();
    struct.getFieldsMap().forEach((key, value) -> whole.put(key, plain(value)));
    return whole;
  }

  private static Object plain(Value value) {
    return switch (value.getKindCase()) {
      case STRUCT_VALUE -> plain(value.getStructValue());
      case LIST_VALUE -> value.getListValue().getValuesList().stream().map(Probe::plain).toList();
      case STRING_VALUE -> value.getStringValue();
      case NUMBER_VALUE -> value.getNumberValue();
      case BOOL_VALUE -> value.getBoolValue();
      default -> null;
    };
  }

  /** A status with its details decoded. */
  private static Map<String, Object> failure(StatusRuntimeException error) throws InvalidProtocolBufferException {
    Map<String, Object> shown = new LinkedHashMap<>();
    shown.put("code", error.getStatus().getCode().value());
    shown.put("message", String.valueOf(error.getStatus().getDescription()));
    shown.put("fields", List.of());
    var status = StatusProto.fromThrowable(error);
    for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        var info = detail.unpack(ErrorInfo.class);
        shown.put("reason", info.getReason());
        shown.put("domain", info.getDomain());
        shown.put("metadata", info.getMetadataMap());
      } else if (detail.is(BadRequest.class)) {
        var fields = detail.unpack(BadRequest.class).getFieldViolationsList();
        shown.put("fields", fields.stream().map(BadRequest.FieldViolation::getField).toList());
      }
    }
    return shown;
  }

  private static String fresh() {
    return "java-" + UUID.randomUUID();
  }
}
